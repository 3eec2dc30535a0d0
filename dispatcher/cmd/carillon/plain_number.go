package main

import (
	"fmt"
	"reflect"
	"strconv"

	"github.com/alecthomas/kong"

	"github.com/carillon-dev/carillon/dispatcher/input"
)

// plainNumber reads a flag that is a number. Kong's own mapper takes 010 for eight, and 0x10 and 1_000, too.
func plainNumber(ctx *kong.DecodeContext, target reflect.Value) error {
	value, err := ctx.Scan.PopValue("number")
	if err != nil {
		return err
	}
	text := fmt.Sprint(value.Value)
	n, err := strconv.ParseInt(text, 10, target.Type().Bits())
	if err != nil || strconv.FormatInt(n, 10) != text {
		return fmt.Errorf("%s is not a plain number such as 10", input.Echo(text))
	}
	target.SetInt(n)
	return nil
}
