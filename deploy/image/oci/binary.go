package main

import (
	"bytes"
	"debug/elf"
	"fmt"
	"os"
	"regexp"
	"strings"
)

// A static executable for Linux.
type binary struct {
	content []byte
	arch    string  // as in OCI platforms
	glibc   *glibc  // nil without glibc
	rust    string  // version of the compiler, or empty
	reader  *reader // nil without tautline-nvml
}

// The C library in a static executable.
type glibc struct {
	distribution string // empty for one built from upstream's source
	version      string
}

// GNU's `ldd --version` prints the same line.
var glibcBanner = regexp.MustCompile(`GNU C Library \((?:(\w+) GLIBC|GNU libc)(?: ([^)\s]+))?\) (?:stable|development) release version (\d+\.\d+)`)

var rustcVersion = regexp.MustCompile(`rustc version (\S+)`)

func readBinary(path string) (*binary, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	file, err := elf.NewFile(bytes.NewReader(content))
	if err != nil {
		return nil, fmt.Errorf("%s is not a Linux executable: %w", path, err)
	}
	b := &binary{content: content}
	switch file.Machine {
	case elf.EM_X86_64:
		b.arch = "amd64"
	case elf.EM_AARCH64:
		b.arch = "arm64"
	default:
		return nil, fmt.Errorf("%s is for %s; images are for amd64 and arm64", path, file.Machine)
	}
	if err := checkStatic(path, file); err != nil {
		return nil, err
	}
	if b.glibc, err = findGlibc(content); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if section := file.Section(".comment"); section != nil {
		if data, err := section.Data(); err == nil {
			if m := rustcVersion.FindSubmatch(data); m != nil {
				b.rust = string(m[1])
			}
		}
	}
	return b, nil
}

// The C library in the executable, or nil.
func findGlibc(content []byte) (*glibc, error) {
	m := glibcBanner.FindSubmatch(content)
	if m == nil {
		return nil, nil
	}
	major, minor := 0, 0
	if _, err := fmt.Sscanf(string(m[3]), "%d.%d", &major, &minor); err != nil {
		return nil, err
	}
	if major == 2 && minor < 34 {
		return nil, fmt.Errorf("glibc %s cannot resolve names in a static binary: build with 2.34 or later", m[3])
	}
	g := &glibc{distribution: strings.ToLower(string(m[1])), version: string(m[2])}
	if g.version == "" {
		g.version = string(m[3])
	}
	return g, nil
}

func checkStatic(path string, file *elf.File) error {
	libraries, err := file.ImportedLibraries()
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	for _, segment := range file.Progs {
		if segment.Type == elf.PT_INTERP {
			libraries = append(libraries, "a dynamic linker")
		}
	}
	if len(libraries) > 0 {
		return fmt.Errorf("%s is dynamically linked and the image has no libraries; it needs %s. Use the static binary that deploy/image/build makes without --binary",
			path, strings.Join(libraries, ", "))
	}
	return nil
}

func (b *binary) machine() elf.Machine {
	return map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}[b.arch]
}

// The compiler's name for the binary's platform.
func (b *binary) triple() string {
	return map[string]string{
		"amd64": "x86_64-unknown-linux-gnu",
		"arm64": "aarch64-unknown-linux-gnu",
	}[b.arch]
}
