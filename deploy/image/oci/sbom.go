package main

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"time"

	cdx "github.com/CycloneDX/cyclonedx-go"
)

// The software in the binary, as CycloneDX JSON. The workspace's crates are one
// component: they are in no registry.
func sbom(b *binary, crates []*crate, created time.Time) ([]byte, error) {
	app, err := application(crates)
	if err != nil {
		return nil, err
	}
	const appRef = "tautline"
	byID := map[string]*crate{}
	for _, c := range crates {
		byID[c.ID] = c
	}

	var components []cdx.Component
	dependencies := map[string][]string{appRef: nil}
	for _, c := range crates {
		ref := appRef
		if c.foreign() {
			ref = c.purl()
			component := cdx.Component{
				Type: cdx.ComponentTypeLibrary, BOMRef: ref, Name: c.Name, Version: c.Version, PackageURL: ref,
			}
			if c.License != "" {
				component.Licenses = &cdx.Licenses{{Expression: spdx(c.License)}}
			}
			components = append(components, component)
			dependencies[ref] = nil
		}
		for _, id := range c.dependencies {
			if byID[id].foreign() {
				dependencies[ref] = append(dependencies[ref], byID[id].purl())
			}
		}
	}
	for _, component := range linkedRuntimes(b) {
		components = append(components, component)
		dependencies[appRef] = append(dependencies[appRef], component.BOMRef)
		dependencies[component.BOMRef] = nil
	}

	var graph []cdx.Dependency
	for _, component := range append([]cdx.Component{{BOMRef: appRef}}, components...) {
		on := dependencies[component.BOMRef]
		slices.Sort(on)
		on = slices.Compact(on)
		graph = append(graph, cdx.Dependency{Ref: component.BOMRef, Dependencies: &on})
	}

	bom := cdx.NewBOM()
	bom.Metadata = &cdx.Metadata{
		Timestamp: created.Format(time.RFC3339),
		Component: &cdx.Component{
			Type: cdx.ComponentTypeApplication, BOMRef: appRef, Name: app.Name, Version: app.Version,
			Description: app.Description, Licenses: &cdx.Licenses{{Expression: app.License}},
		},
	}
	bom.Components = &components
	bom.Dependencies = &graph
	var out bytes.Buffer
	encoder := cdx.NewBOMEncoder(&out, cdx.BOMFileFormatJSON)
	if err := encoder.SetPretty(true).EncodeVersion(bom, cdx.SpecVersion1_6); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// Rust's standard library and the C library, which are no crates.
func linkedRuntimes(b *binary) []cdx.Component {
	var out []cdx.Component
	if b.rust != "" {
		out = append(out, cdx.Component{
			Type: cdx.ComponentTypeLibrary, Name: "std", Version: b.rust,
			Description: "Rust's standard library",
			CPE:         fmt.Sprintf("cpe:2.3:a:rust-lang:rust:%s:*:*:*:*:*:*:*", b.rust),
			PackageURL:  "pkg:generic/rust@" + b.rust,
			Licenses:    &cdx.Licenses{{Expression: "MIT OR Apache-2.0"}},
		})
	}
	glibc, linking := b.glibc, "linked statically"
	if b.reader != nil && b.reader.glibc != nil {
		glibc, linking = b.reader.glibc, "shared libraries of tautline-nvml"
		if b.glibc != nil && *b.glibc == *b.reader.glibc {
			linking = "linked statically, and shared libraries of tautline-nvml"
		}
	}
	if glibc != nil {
		out = append(out, cdx.Component{
			Type: cdx.ComponentTypeLibrary, Name: "glibc", Version: glibc.version,
			PackageURL:  sourcePackage("glibc", glibc.distribution, glibc.version),
			Description: "GNU C library, " + linking,
			Licenses:    &cdx.Licenses{{Expression: "LGPL-2.1-or-later"}},
		})
	}
	if b.reader != nil && b.reader.gcc != nil {
		gcc := b.reader.gcc
		source := "gcc"
		if major, _, found := strings.Cut(gcc.version, "."); found {
			source += "-" + major
		}
		out = append(out, cdx.Component{
			Type: cdx.ComponentTypeLibrary, Name: "libgcc", Version: gcc.version,
			PackageURL:  sourcePackage(source, gcc.distribution, gcc.version),
			Description: "GCC's runtime library, shared library of tautline-nvml",
			Licenses:    &cdx.Licenses{{Expression: "GPL-3.0-or-later WITH GCC-exception-3.1"}},
		})
	}
	for i := range out {
		out[i].BOMRef = out[i].PackageURL
	}
	return out
}

// The purl of a distribution's source package, or of upstream's source.
func sourcePackage(name, distribution, version string) string {
	if version == "" {
		return "pkg:generic/" + name
	}
	if distribution == "" {
		return "pkg:generic/" + name + "@" + version
	}
	return fmt.Sprintf("pkg:deb/%s/%s@%s?arch=source", distribution, name, version)
}
