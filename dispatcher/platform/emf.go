package platform

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// EMF writes metrics in CloudWatch's embedded metric format: one line of JSON in a log, which
// CloudWatch Logs turns into metrics. No agent is needed.
type EMF struct {
	Namespace  string
	Dimensions map[string]string // shared by the metrics of a line, in one set
	Properties map[string]string // further members of the line that become no metrics
}

// Metric is a named value of a line. A metric without a value is left out of the line, because 0
// would be a value.
type Metric struct {
	Name  string
	Unit  Unit
	Value float64
}

// Unit is one of CloudWatch's units.
type Unit string

// The units that nodes use.
const (
	Count        Unit = "Count"
	Percent      Unit = "Percent"
	Seconds      Unit = "Seconds"
	Milliseconds Unit = "Milliseconds"
)

// Limits of the format.
const (
	mostEMFMetrics    = 100
	mostEMFDimensions = 30
	mostEMFValue      = 1024 // bytes of a name or of a dimension's value
)

// CheckDimension refuses values that CloudWatch does not take for a dimension: CloudWatch would
// silently drop the metrics.
func CheckDimension(value string) error {
	blank := true
	for _, r := range value {
		if r < ' ' || r > '~' {
			return errors.New("CloudWatch takes only printable ASCII characters in the value of a dimension")
		}
		blank = blank && r == ' '
	}
	switch {
	case blank:
		return errors.New("CloudWatch takes no empty value of a dimension")
	case value[0] == ':':
		return errors.New("CloudWatch takes no value of a dimension that begins with a colon")
	case len(value) > mostEMFValue:
		return fmt.Errorf("it has %d bytes, and the value of a dimension has at most %d", len(value), mostEMFValue)
	}
	return nil
}

// emfDirective lists the members of a line that are metrics.
type emfDirective struct {
	Timestamp         int64 // Unix milliseconds
	CloudWatchMetrics []emfMetrics
}

type emfMetrics struct {
	Namespace  string
	Dimensions [][]string
	Metrics    []emfMetric
}

type emfMetric struct {
	Name string
	Unit Unit
}

// emfLine is a line, by its members.
type emfLine map[string]any

func (l emfLine) add(name string, value any) error {
	if _, twice := l[name]; twice || name == "_aws" || name == "" || len(name) > mostEMFValue {
		return fmt.Errorf("embedded metric format: %q: it is not a name, or another member has it", name)
	}
	l[name] = value
	return nil
}

// Line returns one line with its line feed. It refuses metrics that CloudWatch would drop.
func (e EMF) Line(at time.Time, metrics []Metric) ([]byte, error) {
	if len(metrics) == 0 || len(metrics) > mostEMFMetrics || len(e.Dimensions) > mostEMFDimensions {
		return nil, fmt.Errorf("embedded metric format: %d metrics and %d dimensions; a line has 1 to %d metrics and at most %d dimensions",
			len(metrics), len(e.Dimensions), mostEMFMetrics, mostEMFDimensions)
	}
	directive := emfMetrics{Namespace: e.Namespace, Dimensions: [][]string{{}}}
	line := emfLine{}
	var errs []error
	for name, value := range e.Dimensions {
		if err := CheckDimension(value); err != nil {
			errs = append(errs, fmt.Errorf("embedded metric format: dimension %s: %w", name, err))
		}
		directive.Dimensions[0] = append(directive.Dimensions[0], name)
		errs = append(errs, line.add(name, value))
	}
	for name, value := range e.Properties {
		errs = append(errs, line.add(name, value))
	}
	for _, m := range metrics {
		if math.IsNaN(m.Value) || math.IsInf(m.Value, 0) {
			errs = append(errs, fmt.Errorf("embedded metric format: metric %s: %v is not a value", m.Name, m.Value))
			continue
		}
		directive.Metrics = append(directive.Metrics, emfMetric{m.Name, m.Unit})
		errs = append(errs, line.add(m.Name, m.Value))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	line["_aws"] = emfDirective{Timestamp: at.UnixMilli(), CloudWatchMetrics: []emfMetrics{directive}}
	text, err := json.Marshal(line)
	if err != nil {
		return nil, fmt.Errorf("embedded metric format: %w", err)
	}
	return append(text, '\n'), nil
}

// MemoryLimit is how much memory a process may use before the kernel kills it.
type MemoryLimit struct {
	Bytes  int64
	Source string // the file with the limit
}

// noLimit is the smallest value that means no limit: version 1 of control groups writes the largest
// multiple of a page.
const noLimit = math.MaxInt64 / 2

// ContainerMemory returns the smallest memory limit of the control groups of this process, of
// version 1 or 2. A container, a unit of systemd and a pod are such groups. root is the root
// directory, "/". ok is false without a limit.
//
// Limits of groups outside the container's view are not visible, except with version 1, which
// reports the smallest of them.
func ContainerMemory(root string) (limit MemoryLimit, ok bool) {
	groups, err := os.ReadFile(filepath.Join(root, "proc/self/cgroup"))
	if err != nil {
		return MemoryLimit{}, false // no control groups
	}
	smallest := MemoryLimit{Bytes: noLimit}
	note := func(bytes int64, source string) {
		if bytes > 0 && bytes < smallest.Bytes {
			smallest = MemoryLimit{bytes, source}
		}
	}
	for line := range strings.Lines(string(groups)) {
		// hierarchy:controllers:path; version 2 names no controllers
		fields := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(fields) != 3 {
			continue
		}
		mount, files := "/sys/fs/cgroup", []string{"memory.max"}
		if fields[1] != "" {
			mount, files = "/sys/fs/cgroup/memory", []string{"memory.limit_in_bytes", "memory.stat"}
			if !slices.Contains(strings.Split(fields[1], ","), "memory") {
				continue
			}
		}
		// A container may see its own group as the root, under a path that exists only on the host,
		// so missing groups are skipped.
		for group := path.Clean("/" + fields[2]); ; group = path.Dir(group) {
			for _, file := range files {
				source := path.Join(mount, group, file)
				if text, err := os.ReadFile(filepath.Join(root, source)); err == nil {
					note(limitIn(string(text)), source)
				}
			}
			if group == "/" {
				break
			}
		}
	}
	return smallest, smallest.Bytes < noLimit
}

// limitIn parses the limit in a file of a control group: a number, "max", or the line of
// memory.stat with the smallest limit up to the root. It returns 0 without a limit.
func limitIn(text string) int64 {
	for line := range strings.Lines(text) {
		if value, found := strings.CutPrefix(line, "hierarchical_memory_limit "); found {
			text = value
			break
		}
	}
	limit, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
	if err != nil {
		return 0
	}
	return limit
}
