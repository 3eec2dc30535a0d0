package main

import (
	"context"
	"debug/buildinfo"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io"
	"runtime/debug"
	"strings"
	"time"

	cdx "github.com/CycloneDX/cyclonedx-go"
)

// billsOfMaterials writes the modules that each program was linked from, next to its archive.
func (r *release) billsOfMaterials(ctx context.Context) error {
	for _, p := range r.builds() {
		for _, prog := range r.programs(p) {
			binary, err := r.binary(ctx, p, prog)
			if err != nil {
				return err
			}
			bill, err := r.bill(prog, binary)
			if err != nil {
				return err
			}
			name := r.archiveName(p, prog) + ".cdx.json"
			if err := r.create(name, func(w io.Writer) error {
				// Version 1.6 is the newest that common scanners read.
				return cdx.NewBOMEncoder(w, cdx.BOMFileFormatJSON).SetPretty(true).EncodeVersion(bill, cdx.SpecVersion1_6)
			}); err != nil {
				return err
			}
		}
	}
	return nil
}

// bill reads the bill of materials that the linker left in a program, which "go version -m" prints.
func (r *release) bill(prog program, binary string) (*cdx.BOM, error) {
	info, err := buildinfo.ReadFile(binary)
	if err != nil {
		return nil, err
	}
	hash, err := sum(binary)
	if err != nil {
		return nil, err
	}
	standard := "std@" + strings.TrimPrefix(info.GoVersion, "go")
	components := []cdx.Component{component("std", strings.TrimPrefix(info.GoVersion, "go"), "")}
	direct := []string{standard}
	for _, dep := range info.Deps {
		if dep.Replace != nil {
			dep = dep.Replace
		}
		components = append(components, component(dep.Path, dep.Version, dep.Sum))
		direct = append(direct, dep.Path+"@"+dep.Version)
	}
	self := component(info.Main.Path, "v"+r.version, "")
	self.Type, self.Name = cdx.ComponentTypeApplication, prog.title()
	self.Version = r.version
	self.PackageURL += "#" + strings.TrimPrefix(prog.pkg, "./")
	self.Hashes = &[]cdx.Hash{{Algorithm: cdx.HashAlgoSHA256, Value: hash}}
	self.Licenses = &cdx.Licenses{{License: &cdx.License{ID: "Apache-2.0"}}}
	self.Properties = settings(info.Settings)

	bill := cdx.NewBOM()
	bill.SerialNumber = serial(hash)
	bill.Metadata = &cdx.Metadata{Timestamp: r.created.Format(time.RFC3339), Component: &self}
	bill.Components = &components
	bill.Dependencies = &[]cdx.Dependency{{Ref: self.BOMRef, Dependencies: &direct}}
	return bill, nil
}

// component returns a Go module, with its hash from go.sum.
func component(path, version, sum string) cdx.Component {
	c := cdx.Component{
		BOMRef:     path + "@" + version,
		Type:       cdx.ComponentTypeLibrary,
		Name:       path,
		Version:    version,
		PackageURL: "pkg:golang/" + path + "@" + strings.ReplaceAll(version, "+", "%2B"),
	}
	if hash, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(sum, "h1:")); err == nil && len(hash) > 0 {
		c.Hashes = &[]cdx.Hash{{Algorithm: cdx.HashAlgoSHA256, Value: hex.EncodeToString(hash)}}
	}
	return c
}

// settings returns how the program was built.
func settings(all []debug.BuildSetting) *[]cdx.Property {
	properties := []cdx.Property{}
	for _, s := range all {
		properties = append(properties, cdx.Property{Name: "go:build:" + s.Key, Value: s.Value})
	}
	return &properties
}

// serial makes a UUID from a hash, so that the same program has the same bill.
func serial(hash string) string {
	return fmt.Sprintf("urn:uuid:%s-%s-8%s-8%s-%s", hash[:8], hash[8:12], hash[13:16], hash[17:20], hash[20:32])
}
