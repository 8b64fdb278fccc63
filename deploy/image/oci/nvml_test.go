package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// A dynamic executable of this machine in the place of tautline-nvml runs with the files of
// the image alone.
func TestReaderRunsWithFilesOfImage(t *testing.T) {
	b := &binary{arch: runtime.GOARCH}
	r, err := readReader(shellAsReader(t), b)
	if err != nil {
		t.Fatal(err)
	}
	root := t.TempDir()
	content, err := layerTar(r.files, created)
	if err != nil {
		t.Fatal(err)
	}
	unpack := exec.Command("tar", "-x", "-C", root)
	unpack.Stdin = strings.NewReader(string(content))
	if output, err := unpack.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	var linker string
	dirs := map[string]bool{}
	for _, f := range r.files {
		if strings.HasPrefix(filepath.Base(f.path), "ld-") {
			linker = filepath.Join(root, f.path)
		} else if strings.HasPrefix(f.path, "lib") {
			dirs[filepath.Join(root, filepath.Dir(f.path))] = true
		}
	}
	var path []string
	for dir := range dirs {
		path = append(path, dir)
	}
	output, err := exec.Command(linker, "--library-path", strings.Join(path, ":"), filepath.Join(root, "tautline-nvml"),
		"-c", "while read -r line; do echo \"$line\"; done </proc/self/maps").CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	for line := range strings.Lines(string(output)) {
		if strings.Contains(line, ".so") && !strings.Contains(line, root) {
			t.Errorf("uses a file of this machine: %s", line)
		}
	}
	for _, name := range ofNvidia {
		if !strings.Contains(paths(r.files), "/"+name+" ") {
			t.Errorf("no %s in %s", name, paths(r.files))
		}
	}
	if r.glibc == nil || r.glibc.version == "" {
		t.Error("no version of glibc")
	}
}

func TestReaderTakesLibrariesBesideIt(t *testing.T) {
	b := &binary{arch: runtime.GOARCH}
	dir := shellAsReader(t)
	first, err := readReader(dir, b)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range first.files {
		path := filepath.Join(dir, f.path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		content := f.content
		if filepath.Base(path) == "libdl.so.2" {
			// Its own bytes are after those of the linker.
			content = append(content, "beside"...)
		}
		if err := os.WriteFile(path, content, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	second, err := readReader(dir, b)
	if err != nil {
		t.Fatal(err)
	}
	if paths(first.files) != paths(second.files) {
		t.Errorf("%s, not %s", paths(second.files), paths(first.files))
	}
	for _, f := range second.files {
		if filepath.Base(f.path) == "libdl.so.2" && !strings.HasSuffix(string(f.content), "beside") {
			t.Error("libdl.so.2 is this machine's")
		}
	}
}

func TestReaderIsOptionalAndChecked(t *testing.T) {
	b := &binary{arch: runtime.GOARCH}
	dir := t.TempDir()
	if r, err := readReader(dir, b); r != nil || err != nil {
		t.Errorf("without a file: %v, %v", r, err)
	}
	other := map[string]string{"amd64": "arm64", "arm64": "amd64"}[runtime.GOARCH]
	for want, arch := range map[string]string{"is static": runtime.GOARCH, "is for EM_": other} {
		dir := filepath.Dir(staticBinary(t, arch))
		if err := os.Rename(filepath.Join(dir, "program"), filepath.Join(dir, "tautline-nvml")); err != nil {
			t.Fatal(err)
		}
		if _, err := readReader(dir, b); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}

// shellAsReader is a folder with this machine's shell as tautline-nvml.
func shellAsReader(t *testing.T) string {
	t.Helper()
	shell, err := exec.LookPath("sh")
	if err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(shell)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "tautline-nvml"), content, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

func paths(files []file) string {
	var out strings.Builder
	for _, f := range files {
		out.WriteString("/" + f.path + " ")
	}
	return out.String()
}
