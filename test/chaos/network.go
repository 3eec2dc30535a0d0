package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/carillon-dev/carillon/test/program"
)

// With root privileges, a run has separate network namespaces: one for itself with the database and
// the receiver, and one for each node, connected to it by a veth pair. They belong to a process
// that this program starts, so they disappear with it however the run ends.

// Addresses of this program on the veth link to a node, of the node, and of the receivers.
func hubAddress(node int) string  { return fmt.Sprintf("10.91.%d.1", node) }
func nodeAddress(node int) string { return fmt.Sprintf("10.91.%d.2", node) }

const (
	nearAddress = "10.91.100.1"
	farAddress  = "10.91.100.2"
)

// runSeparately makes one run in a process with separate networks. It returns errTogether and
// prints the reason if the kernel does not allow that.
func runSeparately(ctx context.Context, o options, spawn program.Spawner, w io.Writer) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	args := []string{
		"-separate", "-program", o.program, "-checker", o.checker, "-dir", o.dir, "-seconds", strconv.Itoa(o.seconds),
		"-seed", strconv.FormatUint(o.seed, 10), "-kills", o.kills, "-faults", o.faults, "-bounded", strconv.Itoa(o.bounded),
		"-look", o.look,
	}
	if o.production {
		args = append(args, "-production")
	}
	for _, arg := range o.args {
		args = append(args, "-node-arg", arg)
	}
	command := exec.CommandContext(ctx, self, args...)
	// Separate network interfaces and mounts.
	command.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET | unix.CLONE_NEWNS, Pdeathsig: syscall.SIGTERM}
	command.Stdout, command.Stderr = w, os.Stderr
	command.Cancel = func() error { return command.Process.Signal(syscall.SIGTERM) }
	command.WaitDelay = time.Minute
	if err := spawn.Start(command); err != nil {
		fmt.Fprintf(w, "%s: %s\n", errTogether, err)
		return errTogether
	}
	err = command.Wait()
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return err
	}
	if exit.ExitCode() == exitTogether {
		return errTogether // already printed with its reason
	}
	return errVerdict // or another error, already printed
}

// errTogether means that nodes cannot have separate networks on this machine.
var errTogether = errors.New("chaos: no network namespaces here, so a proxy makes the partitions")

// exitTogether is the exit code for it.
const exitTogether = 3

// layVethLinks gives each node a separate network. It runs in a process with its own network.
func layVethLinks(ctx context.Context, nodes int) error {
	present, err := net.Interfaces()
	if err != nil {
		return err
	}
	if slices.ContainsFunc(present, func(i net.Interface) bool { return i.Flags&net.FlagUp != 0 }) {
		return errors.New("this network is not a new one")
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("keep mounts apart: %w", err)
	}
	// The names of networks are mounts in this directory, invisible to other processes.
	if err := os.MkdirAll("/run/netns", 0o755); err != nil {
		return err
	}
	if err := unix.Mount("tmpfs", "/run/netns", "tmpfs", 0, ""); err != nil {
		return fmt.Errorf("mount names of networks: %w", err)
	}
	commands := []string{"link set lo up", "addr add " + nearAddress + "/32 dev lo", "addr add " + farAddress + "/32 dev lo"}
	for i := range nodes {
		n, hub := fmt.Sprintf("n%d", i+1), fmt.Sprintf("hub%d", i+1)
		commands = append(commands,
			"netns add "+n, "link add "+hub+" type veth peer name eth0 netns "+n,
			"addr add "+hubAddress(i+1)+"/24 dev "+hub, "link set "+hub+" up",
			"-n "+n+" addr add "+nodeAddress(i+1)+"/24 dev eth0", "-n "+n+" link set lo up", "-n "+n+" link set eth0 up",
			"-n "+n+" route add default via "+hubAddress(i+1), "netns exec "+n+" tee "+orphanRetries)
	}
	for _, command := range commands {
		run := exec.CommandContext(ctx, "ip", strings.Fields(command)...)
		run.Stdin = strings.NewReader(mostOrphanRetries)
		if out, err := run.CombinedOutput(); err != nil {
			return fmt.Errorf("ip %s: %w: %s", command, err, bytes.TrimSpace(out))
		}
	}
	// Check that all rules work on this machine.
	for _, how := range cuts {
		if err := filter(ctx, "n1", how, hubAddress(1), 1); err != nil {
			return err
		}
	}
	return unfilter(ctx, "n1")
}

// If the network is cut, the kernel may deliver data of a killed process even a minute later. Such a request
// says nothing about Carillon, so in the nodes' networks the kernel gives up after some 6 s.
const (
	orphanRetries     = "/proc/sys/net/ipv4/tcp_orphan_retries"
	mostOrphanRetries = "4"
)

// cut is a way to cut a network: rules for outgoing and for incoming packets.
type cut struct{ name, leaves, arrives string }

// cuts are all of these ways.
var cuts = []cut{
	{"all dropped", "drop", "drop"},
	{"reset", "reject with tcp reset", "drop"},
	{"10 % dropped", "numgen random mod 100 < 10 drop", "numgen random mod 100 < 10 drop"},
	{"outgoing dropped", "drop", "accept"},
	{"incoming dropped", "accept", "drop"},
}

// filter applies a cut between a node and a port of an address.
func filter(ctx context.Context, node string, how cut, address string, port int) error {
	rules := fmt.Sprintf(`table ip chaos {
		chain leaves { type filter hook output priority 0; ip daddr %[1]s tcp dport %[2]d %[3]s; }
		chain arrives { type filter hook input priority 0; ip saddr %[1]s tcp sport %[2]d %[4]s; }
	}`, address, port, how.leaves, how.arrives)
	return nft(ctx, node, "add table ip chaos; delete table ip chaos; "+rules)
}

// unfilter removes the cut.
func unfilter(ctx context.Context, node string) error {
	return nft(ctx, node, "add table ip chaos; delete table ip chaos")
}

func nft(ctx context.Context, node, rules string) error {
	command := exec.CommandContext(ctx, "ip", "netns", "exec", node, "nft", "-f", "-")
	command.Stdin = strings.NewReader(rules)
	if out, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("nft in network %s: %w: %s", node, err, bytes.TrimSpace(out))
	}
	return nil
}
