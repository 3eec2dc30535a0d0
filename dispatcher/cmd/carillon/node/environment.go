package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/carillon-dev/carillon/dispatcher/input"
)

// mostECSStop is the longest time that ECS leaves a container between SIGTERM and SIGKILL.
const mostECSStop = 120 * time.Second

// warnOfEnvironment logs what a user may expect of the environment and does not get. lookUp is os.LookupEnv.
func (s *Flags) warnOfEnvironment(ctx context.Context, log *slog.Logger, lookUp func(string) (string, bool)) {
	if zone, set := lookUp("TZ"); set {
		log.InfoContext(ctx, "the variable TZ is ignored: each trigger names its time zone, and the log is in UTC", "tz", zone)
	}
	if _, onECS := lookUp("ECS_CONTAINER_METADATA_URI_V4"); onECS && s.DrainTimeout.Std() > mostECSStop-stopMargin {
		log.WarnContext(ctx, "ECS kills a container 120 s after SIGTERM at the latest, before this drain ends; set a shorter "+
			"--drain-timeout, or --task-protection", "drain_timeout", s.DrainTimeout.String(), "most", (mostECSStop - stopMargin).String())
	}
}

// checkListen refuses an address that net.Listen reads as another one than is written: without a port it takes any, and
// it reads names of services and leading zeros.
func checkListen(address string) error {
	_, port, err := net.SplitHostPort(address)
	n, wrong := strconv.ParseUint(port, 10, 16)
	if err != nil || wrong != nil || strconv.FormatUint(n, 10) != port {
		return fmt.Errorf("--listen (CARILLON_LISTEN) %s is not HOST:PORT with a plain number from 0 to 65535 as port, such as 127.0.0.1:8080; "+
			"0 takes any free port", input.Echo(address))
	}
	return nil
}

// listenError tells an address that is wrong from one that another process has: that one may end.
func listenError(address string, err error) error {
	named := fmt.Errorf("--listen (CARILLON_LISTEN) %s: %w", input.Echo(address), err)
	if errors.Is(err, syscall.EADDRINUSE) {
		return fmt.Errorf("%w: another process listens there; end it, or choose another port", named)
	}
	return &InvalidError{named}
}

// checkNodeName bounds a name that is stored and shown with every attempt.
func checkNodeName(name string) error {
	const most = 255
	if !utf8.ValidString(name) || utf8.RuneCountInString(name) > most || strings.ContainsFunc(name, func(r rune) bool {
		return !unicode.IsPrint(r)
	}) {
		return fmt.Errorf("--node-name (CARILLON_NODE_NAME) %s has more than %d characters, or one that cannot be printed",
			input.Echo(name), most)
	}
	return nil
}
