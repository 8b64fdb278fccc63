package main

import (
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// tautline-nvml, which loads NVIDIA's library from the node, so that it needs a dynamic linker
// and shared libraries in the image.
type reader struct {
	files []file // the executable, its linker, its libraries
	glibc *glibc
	gcc   *gcc
}

// The origin of libgcc_s.
type gcc struct {
	distribution, version string // empty if unknown
}

var gccBanner = regexp.MustCompile(`GCC: \((\w+) ([^)]+)\) \d`)

// libnvidia-ml.so.1 needs these, besides those of the executable.
var ofNvidia = []string{"libc.so.6", "libdl.so.2", "libm.so.6", "libpthread.so.0", "librt.so.1"}

// readReader takes the executable tautline-nvml beside a binary, or nil if there is none.
// Libraries come from lib beside it, or from this machine.
func readReader(dir string, b *binary) (*reader, error) {
	path := filepath.Join(dir, "tautline-nvml")
	content, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	executable, err := elf.NewFile(bytes.NewReader(content))
	if err != nil {
		return nil, fmt.Errorf("%s is not a Linux executable: %w", path, err)
	}
	if executable.Machine != b.machine() {
		return nil, fmt.Errorf("%s is for %s, and tautline for %s", path, executable.Machine, b.arch)
	}
	linker, err := interpreter(executable)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	needed, err := executable.ImportedLibraries()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	r := &reader{files: []file{{"tautline-nvml", 0o755, content}}}
	taken := map[string]bool{filepath.Base(linker): true}
	found, err := b.findLibrary(dir, filepath.Base(linker))
	if err != nil {
		return nil, err
	}
	r.files = append(r.files, file{strings.TrimPrefix(linker, "/"), 0o755, found.content})
	for queue := append(needed, ofNvidia...); len(queue) > 0; queue = queue[1:] {
		name := queue[0]
		if taken[name] {
			continue
		}
		taken[name] = true
		found, err := b.findLibrary(dir, name)
		if err != nil {
			return nil, err
		}
		r.files = append(r.files, file{strings.TrimPrefix(found.place, "/"), 0o644, found.content})
		queue = append(queue, found.needed...)
		switch name {
		case "libc.so.6":
			if r.glibc, err = findGlibc(found.content); err != nil {
				return nil, fmt.Errorf("%s: %w", found.place, err)
			}
		case "libgcc_s.so.1":
			// Its own file does not say; the compiler that linked the executable is of the same release.
			r.gcc = &gcc{}
			if m := gccBanner.FindSubmatch(content); m != nil {
				r.gcc = &gcc{strings.ToLower(string(m[1])), string(m[2])}
			}
		}
	}
	slices.SortFunc(r.files, func(a, b file) int { return strings.Compare(a.path, b.path) })
	return r, nil
}

func interpreter(executable *elf.File) (string, error) {
	for _, segment := range executable.Progs {
		if segment.Type == elf.PT_INTERP {
			text, err := io.ReadAll(segment.Open())
			return strings.TrimRight(string(text), "\x00"), err
		}
	}
	return "", errors.New("is static, and could not load NVIDIA's library; build it without crt-static")
}

type library struct {
	place   string // in the image
	content []byte
	needed  []string
}

// findLibrary searches where an image of this program, this machine, and Debian's cross
// compilers have libraries.
func (b *binary) findLibrary(dir, name string) (*library, error) {
	gnu := strings.Replace(b.triple(), "-unknown", "", 1)
	// Where the linker looks, which comes from the same place.
	places := []string{"/lib/" + gnu, "/usr/lib/" + gnu, "/lib64", "/usr/lib64", "/lib", "/usr/lib"}
	for _, root := range []string{dir, "/", "/usr/" + gnu} {
		for _, place := range places {
			content, err := os.ReadFile(filepath.Join(root, place, name))
			if err != nil {
				continue
			}
			object, err := elf.NewFile(bytes.NewReader(content))
			if err != nil || object.Machine != b.machine() {
				continue
			}
			needed, err := object.ImportedLibraries()
			if err != nil {
				return nil, fmt.Errorf("%s: %w", filepath.Join(root, place, name), err)
			}
			if root == "/usr/"+gnu {
				place = "/lib/" + gnu
			}
			return &library{filepath.Join(place, name), content, needed}, nil
		}
	}
	return nil, fmt.Errorf("no %s for %s, which tautline-nvml needs: install the C library of that platform (Debian: libc6-%s-cross and libgcc-s1-%s-cross), or put it into lib/%s beside tautline-nvml",
		name, b.arch, b.arch, b.arch, gnu)
}
