package main

import (
	"archive/tar"
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	cdx "github.com/CycloneDX/cyclonedx-go"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

var created = time.Unix(1_700_000_000, 0).UTC()

func TestReadBinaryTakesArchitectureFromStaticBinary(t *testing.T) {
	for _, arch := range []string{"amd64", "arm64"} {
		b, err := readBinary(staticBinary(t, arch))
		if err != nil {
			t.Fatal(err)
		}
		if b.arch != arch || b.glibc != nil || b.rust != "" {
			t.Errorf("%s: arch %s, glibc %v, rust %q", arch, b.arch, b.glibc, b.rust)
		}
	}
}

func TestReadBinaryRefusesDynamicBinary(t *testing.T) {
	shell, err := exec.LookPath("sh")
	if err != nil {
		t.Fatal(err)
	}
	_, err = readBinary(shell)
	if err == nil || !strings.Contains(err.Error(), "dynamically linked") || !strings.Contains(err.Error(), "libc.so.6") {
		t.Errorf("got %v", err)
	}
}

func TestReadBinaryRefusesOtherFiles(t *testing.T) {
	if _, err := readBinary("go.mod"); err == nil || !strings.Contains(err.Error(), "not a Linux executable") {
		t.Errorf("got %v", err)
	}
	if _, err := readBinary(staticBinary(t, "386")); err == nil || !strings.Contains(err.Error(), "EM_386") {
		t.Errorf("got %v", err)
	}
}

func TestFindGlibcReadsBanner(t *testing.T) {
	for banner, want := range map[string]glibc{
		"GNU C Library (Debian GLIBC 2.36-9+deb12u14) stable release version 2.36.": {"debian", "2.36-9+deb12u14"},
		"GNU C Library (Ubuntu GLIBC 2.39-0ubuntu8.6) stable release version 2.39.": {"ubuntu", "2.39-0ubuntu8.6"},
		"GNU C Library (GNU libc) stable release version 2.41.":                     {"", "2.41"},
	} {
		if got, err := findGlibc([]byte("\x00" + banner + "\n")); err != nil || got == nil || *got != want {
			t.Errorf("%s: got %v, %v", banner, got, err)
		}
	}
	old := "GNU C Library (Debian GLIBC 2.31-13) stable release version 2.31."
	if _, err := findGlibc([]byte(old)); err == nil || !strings.Contains(err.Error(), "2.34") {
		t.Errorf("%s: got %v", old, err)
	}
}

func TestSelectCratesTakesLinkedOnes(t *testing.T) {
	metadata := []byte(`{
		"packages": [
			{"id": "c", "name": "quote", "version": "1.0.0", "source": "registry"},
			{"id": "b", "name": "bytes", "version": "1.2.3", "source": "registry"},
			{"id": "a", "name": "tautline", "version": "0.1.0"}],
		"resolve": {"nodes": [{"id": "a", "dependencies": ["b", "c"]}, {"id": "b", "dependencies": []}]}}`)
	crates, err := selectCrates([]byte("tautline v0.1.0 (/src/cli)\nbytes v1.2.3\nbytes v1.2.3\n"), metadata)
	if err != nil {
		t.Fatal(err)
	}
	if len(crates) != 2 || crates[0].Name != "bytes" || !slices.Equal(crates[1].dependencies, []string{"b"}) {
		t.Errorf("got %+v", crates)
	}
	if _, err := selectCrates([]byte("syn v2.0.0\n"), metadata); err == nil || !strings.Contains(err.Error(), "syn@2.0.0") {
		t.Errorf("got %v", err)
	}
}

func TestThirdPartyLicensesHasEachTextOnce(t *testing.T) {
	_, crates := workspace(t)
	content, err := thirdPartyLicenses(crates)
	if err != nil {
		t.Fatal(err)
	}
	for part, times := range map[string]int{
		"bytes 1.2.3: MIT OR Apache-2.0\n":                              1,
		"bytes 1.2.3, http 1.0.0\n\nPermission":                         1,
		"Permission is granted":                                         1,
		"bare 0.9.0: ISC\n    by A. Author; https://example.com/bare\n": 1,
		"tautline 0.1.0":                                                0,
	} {
		if got := strings.Count(string(content), part); got != times {
			t.Errorf("%q: %d times, not %d, in\n%s", part, got, times, content)
		}
	}
}

func TestSBOMDescribesLinkedSoftware(t *testing.T) {
	_, crates := workspace(t)
	content, err := sbom(&binary{arch: "amd64", rust: "1.95.0", glibc: &glibc{"debian", "2.36-9"}}, crates, created)
	if err != nil {
		t.Fatal(err)
	}
	var bom cdx.BOM
	if err := cdx.NewBOMDecoder(bytes.NewReader(content), cdx.BOMFileFormatJSON).Decode(&bom); err != nil {
		t.Fatal(err)
	}
	var purls []string
	for _, component := range *bom.Components {
		purls = append(purls, component.PackageURL)
	}
	want := []string{
		"pkg:cargo/bare@0.9.0", "pkg:cargo/bytes@1.2.3", "pkg:cargo/http@1.0.0",
		"pkg:generic/rust@1.95.0", "pkg:deb/debian/glibc@2.36-9?arch=source",
	}
	if !slices.Equal(purls, want) {
		t.Errorf("components %q", purls)
	}
	for _, d := range *bom.Dependencies {
		switch d.Ref {
		case "tautline":
			if len(*d.Dependencies) != 4 { // http, bare, rust, glibc
				t.Errorf("tautline needs %q", *d.Dependencies)
			}
		case "pkg:cargo/http@1.0.0":
			if !slices.Equal(*d.Dependencies, []string{"pkg:cargo/bytes@1.2.3"}) {
				t.Errorf("http needs %q", *d.Dependencies)
			}
		}
	}
}

func TestImageHasUserEntrypointAndModes(t *testing.T) {
	out, digest := writeImage(t)
	index, err := layout.ImageIndexFromPath(filepath.Join(out, "oci"))
	if err != nil {
		t.Fatal(err)
	}
	if err := validate.Index(index); err != nil {
		t.Fatal(err)
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	if len(manifest.Manifests) != 1 || manifest.Manifests[0].Digest != digest ||
		manifest.Manifests[0].Annotations["io.containerd.image.name"] != "docker.io/library/tautline:1.2" {
		t.Fatalf("index.json: %+v, expected %s", manifest.Manifests, digest)
	}
	platforms, err := index.ImageIndex(digest)
	if err != nil {
		t.Fatal(err)
	}
	manifest, err = platforms.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	var arches []string
	for _, descriptor := range manifest.Manifests {
		arches = append(arches, descriptor.Platform.String())
		image, err := platforms.Image(descriptor.Digest)
		if err != nil {
			t.Fatal(err)
		}
		checkImage(t, image)
	}
	if !slices.Equal(arches, []string{"linux/amd64", "linux/arm64"}) {
		t.Errorf("platforms %q", arches)
	}
}

func checkImage(t *testing.T, image v1.Image) {
	t.Helper()
	config, err := image.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	if config.Config.User != "65532:65532" || !slices.Equal(config.Config.Entrypoint, []string{"/tautline"}) || len(config.Config.Cmd) != 0 {
		t.Errorf("config %+v", config.Config)
	}
	if !config.Created.Equal(created) || config.Config.Labels["org.opencontainers.image.version"] != "0.1.0" ||
		config.Config.Labels["org.opencontainers.image.source"] != "https://example.com/source" {
		t.Errorf("created %s, labels %q", config.Created, config.Config.Labels)
	}
	layers, err := image.Layers()
	if err != nil || len(layers) != 1 {
		t.Fatal(layers, err)
	}
	content, err := layers[0].Uncompressed()
	if err != nil {
		t.Fatal(err)
	}
	modes := map[string]int64{}
	for r := tar.NewReader(content); ; {
		header, err := r.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if header.Uid != 0 || header.Gid != 0 || !header.ModTime.Equal(created) {
			t.Errorf("%+v", header)
		}
		if dir := filepath.Dir(header.Name); header.Typeflag == tar.TypeReg && dir != "." && modes[dir+"/"] == 0 {
			t.Errorf("%s comes before its directory", header.Name)
		}
		modes[header.Name] = header.Mode
	}
	want := map[string]int64{
		"etc/": 0o755, "etc/group": 0o644, "etc/nsswitch.conf": 0o644, "etc/passwd": 0o644,
		"licenses/": 0o755, "licenses/LICENSE": 0o644, "licenses/THIRD-PARTY": 0o644,
		"sbom/": 0o755, "sbom/tautline.cdx.json": 0o644,
		"tautline": 0o755,
	}
	for path, mode := range want {
		if modes[path] != mode {
			t.Errorf("%s has mode %o", path, modes[path])
		}
	}
	if len(modes) != len(want) {
		t.Errorf("layer has %v", modes)
	}
}

func TestArchiveHasNameAndImage(t *testing.T) {
	out, _ := writeImage(t)
	reference, err := name.NewTag("tautline:1.2")
	if err != nil {
		t.Fatal(err)
	}
	image, err := tarball.ImageFromPath(filepath.Join(out, "arm64.tar"), &reference)
	if err != nil {
		t.Fatal(err)
	}
	if err := validate.Image(image); err != nil {
		t.Fatal(err)
	}
	config, err := image.ConfigFile()
	if err != nil || config.Architecture != "arm64" {
		t.Errorf("%+v, %v", config, err)
	}
}

func TestImageIsReproducible(t *testing.T) {
	first, digest := writeImage(t)
	second, again := writeImage(t)
	if digest != again {
		t.Errorf("%s, then %s", digest, again)
	}
	for _, archive := range []string{"amd64.tar", "arm64.tar"} {
		a, err := os.ReadFile(filepath.Join(first, archive))
		if err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(filepath.Join(second, archive))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(a, b) {
			t.Errorf("%s differs", archive)
		}
	}
}

func TestWriteReplacesEarlierImage(t *testing.T) {
	out, _ := writeImage(t)
	stale := filepath.Join(out, "oci", "blobs", "stale")
	other := filepath.Join(out, "notes.txt")
	for _, path := range []string{stale, other} {
		if err := os.WriteFile(path, nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	writeImageTo(t, out)
	if _, err := os.Stat(stale); !os.IsNotExist(err) {
		t.Errorf("the stale blob: %v", err)
	}
	if _, err := os.Stat(other); err != nil {
		t.Error(err)
	}
}

func TestRunRefusesBadArguments(t *testing.T) {
	for want, args := range map[string][]string{
		"usage":      {"--tag", "tautline:1"},
		"has no tag": {"--out", "x", "--tag", "tautline", "--created", "1", "b"},
		"--created":  {"--out", "x", "--tag", "tautline:1", "--created", "now", "b"},
	} {
		if err := run(args); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", args, err)
		}
	}
}

func writeImage(t *testing.T) (string, v1.Hash) {
	t.Helper()
	out := t.TempDir()
	return out, writeImageTo(t, out)
}

func writeImageTo(t *testing.T, out string) v1.Hash {
	t.Helper()
	root, crates := workspace(t)
	var images []platformImage
	for _, arch := range []string{"amd64", "arm64"} {
		b, err := readBinary(staticBinary(t, arch))
		if err != nil {
			t.Fatal(err)
		}
		image, err := build(root, b, crates, "https://example.com/source", created)
		if err != nil {
			t.Fatal(err)
		}
		images = append(images, image)
	}
	reference, err := name.NewTag("tautline:1.2")
	if err != nil {
		t.Fatal(err)
	}
	digest, err := write(out, reference, images)
	if err != nil {
		t.Fatal(err)
	}
	return digest
}

// A workspace whose executable links three other crates.
func workspace(t *testing.T) (string, []*crate) {
	t.Helper()
	root := t.TempDir()
	mit := "Permission is granted\n"
	for path, content := range map[string]string{
		"LICENSE":           "Apache License\n",
		"bytes/LICENSE-MIT": mit,
		"http/LICENSE":      strings.ReplaceAll(mit, "\n", "\r\n"),
		"bare/README.md":    "",
	} {
		path = filepath.Join(root, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	crates := []*crate{
		{ID: "bare", Name: "bare", Version: "0.9.0", License: "ISC", Authors: []string{"A. Author"}, Repository: "https://example.com/bare"},
		{ID: "bytes", Name: "bytes", Version: "1.2.3", License: "MIT/Apache-2.0"},
		{ID: "http", Name: "http", Version: "1.0.0", License: "MIT", dependencies: []string{"bytes"}},
		{ID: "tautline", Name: "tautline", Version: "0.1.0", License: "Apache-2.0", dependencies: []string{"core", "http"}},
		{ID: "core", Name: "tautline-core", Version: "0.1.0", License: "Apache-2.0", dependencies: []string{"bare"}},
	}
	for _, c := range crates[:3] {
		c.Source = "registry"
		c.ManifestPath = filepath.Join(root, c.Name, "Cargo.toml")
	}
	return root, crates
}

// A static executable for another platform, made by Go.
func staticBinary(t *testing.T, arch string) string {
	t.Helper()
	dir := t.TempDir()
	source := filepath.Join(dir, "main.go")
	if err := os.WriteFile(source, []byte("package main\n\nfunc main() {}\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(dir, "program")
	command := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-o", out, source)
	command.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+arch)
	if output, err := command.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	return out
}
