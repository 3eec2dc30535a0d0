package platform_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/carillon-dev/carillon/dispatcher/platform"
)

func TestContainerMemoryIsTheSmallestLimitOnTheWayToTheRoot(t *testing.T) {
	t.Parallel()
	const (
		v2, v1 = "sys/fs/cgroup/", "sys/fs/cgroup/memory/"
		none   = "9223372036854771712\n" // "no limit" in version 1
	)
	for name, tt := range map[string]struct {
		files map[string]string
		want  platform.MemoryLimit
	}{
		"version 2, of a unit": {map[string]string{
			"proc/self/cgroup": "0::/system.slice/carillon.service\n",
			v2 + "system.slice/carillon.service/memory.max": "268435456\n",
			v2 + "system.slice/memory.max":                  "max\n",
		}, platform.MemoryLimit{Bytes: 268435456, Source: "/sys/fs/cgroup/system.slice/carillon.service/memory.max"}},
		"version 2, of a parent": {map[string]string{
			"proc/self/cgroup":    "0::/a/b\n",
			v2 + "a/b/memory.max": "3000000\n",
			v2 + "a/memory.max":   "1000000\n",
			v2 + "memory.max":     "2000000\n",
		}, platform.MemoryLimit{Bytes: 1000000, Source: "/sys/fs/cgroup/a/memory.max"}},
		"version 2, in a container": {map[string]string{
			"proc/self/cgroup": "0::/\n", v2 + "memory.max": "536870912\n",
		}, platform.MemoryLimit{Bytes: 536870912, Source: "/sys/fs/cgroup/memory.max"}},
		"version 2, without a limit": {map[string]string{
			"proc/self/cgroup": "0::/a\n", v2 + "a/memory.max": "max\n",
		}, platform.MemoryLimit{}},
		"version 1, in a container that knows the path on its host": {map[string]string{
			"proc/self/cgroup":             "5:cpu,cpuacct:/docker/f00\n4:memory:/docker/f00\n1:name=systemd:/docker/f00\n",
			v1 + "memory.limit_in_bytes":   "134217728\n",
			v2 + "cpu/docker/f00/cpu.stat": "",
		}, platform.MemoryLimit{Bytes: 134217728, Source: "/sys/fs/cgroup/memory/memory.limit_in_bytes"}},
		"version 1, of a task around the container": {map[string]string{
			"proc/self/cgroup":           "4:hugetlb,memory:/\n",
			v1 + "memory.limit_in_bytes": none,
			v1 + "memory.stat":           "cache 0\nhierarchical_memory_limit 1073741824\nhierarchical_memsw_limit 7\n",
		}, platform.MemoryLimit{Bytes: 1073741824, Source: "/sys/fs/cgroup/memory/memory.stat"}},
		"version 1, without a limit": {map[string]string{
			"proc/self/cgroup":             "4:memory:/a\n0::/\n",
			v1 + "a/memory.limit_in_bytes": none, v1 + "a/memory.stat": "hierarchical_memory_limit " + none,
		}, platform.MemoryLimit{}},
		"a group outside of the namespace": {map[string]string{
			"proc/self/cgroup": "0::/../../b\n", v2 + "b/memory.max": "1000000\n",
		}, platform.MemoryLimit{Bytes: 1000000, Source: "/sys/fs/cgroup/b/memory.max"}},
		"no control groups": {map[string]string{}, platform.MemoryLimit{}},
		"invalid lines and numbers": {map[string]string{
			"proc/self/cgroup": "\nx\n0::/\n", v2 + "memory.max": "many\n",
		}, platform.MemoryLimit{}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			root := t.TempDir()
			for file, text := range tt.files {
				path := filepath.Join(root, file)
				if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			got, ok := platform.ContainerMemory(root)
			if want := tt.want.Bytes != 0; ok != want || ok && got != tt.want {
				t.Errorf("got %+v, %v, want %+v, %v", got, ok, tt.want, want)
			}
		})
	}
}
