package main

import (
	"archive/tar"
	"bytes"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestLayerHasFoldersModesAndLinks(t *testing.T) {
	program := filepath.Join(t.TempDir(), "program")
	if err := os.WriteFile(program, []byte("content"), 0o755); err != nil {
		t.Fatal(err)
	}
	layer, err := packLayer([]string{program + "=/usr/bin/program"}, []string{"/bin/p=/usr/bin/program"})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"tmp/ dtrwxrwxrwx", "usr/ drwxr-xr-x", "usr/bin/ drwxr-xr-x", "usr/bin/program -rwxr-xr-x", "bin/ drwxr-xr-x", "bin/p Lrwxrwxrwx"}
	if got := members(t, layer); !slices.Equal(got, want) {
		t.Errorf("%q, not %q", got, want)
	}
	again, err := packLayer([]string{program + "=/usr/bin/program"}, []string{"/bin/p=/usr/bin/program"})
	if err != nil || !bytes.Equal(layer, again) {
		t.Errorf("the same files give another layer: %v", err)
	}
}

func TestImageHasConfigLayerAndManifest(t *testing.T) {
	image, err := wrapImage("localhost/x:1", "/x", []string{"A=b"}, []byte("layer"))
	if err != nil {
		t.Fatal(err)
	}
	got := strings.Join(members(t, image), " ")
	for _, part := range []string{".json ", "/layer.tar ", "manifest.json "} {
		if !strings.Contains(got, part) {
			t.Errorf("%q is not in %s", part, got)
		}
	}
}

func members(t *testing.T, archive []byte) []string {
	var got []string
	for r := tar.NewReader(bytes.NewReader(archive)); ; {
		header, err := r.Next()
		if err == io.EOF {
			return got
		}
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, header.Name+" "+header.FileInfo().Mode().String())
	}
}
