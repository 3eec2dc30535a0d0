package main

import (
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/tfconfig"
)

// lintCommand checks Terraform files without a server.
type lintCommand struct {
	outputFlags
	Dir    []string `arg:"" optional:"" default:"." help:"Directories with Terraform files. Those below them are checked, too, each as a module of its own."`
	Strict bool     `help:"Fail for warnings, too."`
}

// Run prints what is wrong, a problem a line. It fails if there is anything.
func (l *lintCommand) Run(c console) error {
	var found []tfconfig.Problem
	modules := 0
	for _, dir := range l.Dir {
		dirs, err := directories(dir)
		if err != nil {
			return err
		}
		for _, one := range dirs {
			module, err := tfconfig.Load(one)
			if err != nil {
				return &usageError{err}
			}
			found = append(found, module.Lint(time.Now())...)
			modules++
		}
	}
	if err := l.print(c, found); err != nil {
		return err
	}
	failures := 0
	for _, p := range found {
		if l.Strict || !p.Warning {
			failures++
		}
	}
	if failures > 0 {
		return &negativeError{fmt.Errorf("problems found: %d", failures)}
	}
	if l.Output == outputTable {
		fmt.Fprintf(c.err, "carillon: directories checked: %d; no problems\n", modules)
	}
	return nil
}

// directories returns the directories with Terraform files in dir and below.
func directories(dir string) ([]string, error) {
	info, err := os.Stat(dir)
	if err == nil && !info.IsDir() {
		err = &fs.PathError{Op: "read", Path: dir, Err: fmt.Errorf("it is a file; give its directory, which Terraform reads as a whole")}
	}
	if err != nil {
		return nil, &usageError{err}
	}
	found, err := tfconfig.Directories(dir)
	if err == nil && len(found) == 0 {
		err = fmt.Errorf("%s: there are no Terraform files (*.tf)", dir)
	}
	if err != nil {
		return nil, &usageError{err}
	}
	return found, nil
}

func (l *lintCommand) print(c console, found []tfconfig.Problem) error {
	if l.Output != outputTable {
		return printList(l.outputFlags, c, found, "", nil)
	}
	for _, p := range found {
		warning := ""
		if p.Warning {
			warning = "warning: "
		}
		if _, err := fmt.Fprintf(c.out, "%s:%d:%d: %s%s (%s)\n", plain(p.File), p.Line, p.Column, warning, plain(p.Message), p.Code); err != nil {
			return err
		}
	}
	return nil
}
