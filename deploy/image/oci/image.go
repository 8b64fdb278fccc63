package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

const (
	user = "65532:65532"

	passwd = "root:x:0:0:root:/:/nonexistent\nnonroot:x:65532:65532:nonroot:/:/nonexistent\n"
	group  = "root:x:0:\nnonroot:x:65532:\n"
	// /etc/hosts first, as in pods of other images.
	nsswitch = "hosts: files dns\n"
)

// The image of one platform.
type platformImage struct {
	v1.Image
	arch                     string
	sbom                     []byte
	annotations              map[string]string
	compressed, uncompressed int64
}

// One file of the layer; directories come by themselves.
type file struct {
	path    string
	mode    int64
	content []byte
}

func build(root string, b *binary, crates []*crate, source string, created time.Time) (platformImage, error) {
	app, err := application(crates)
	if err != nil {
		return platformImage{}, err
	}
	bom, err := sbom(b, crates, created)
	if err != nil {
		return platformImage{}, err
	}
	licenses, err := licenses(root, b, crates)
	if err != nil {
		return platformImage{}, err
	}
	if b.reader != nil {
		licenses = append(licenses, b.reader.files...)
	}
	content, err := layerTar(append([]file{
		{"etc/group", 0o644, []byte(group)},
		{"etc/nsswitch.conf", 0o644, []byte(nsswitch)},
		{"etc/passwd", 0o644, []byte(passwd)},
		{"sbom/tautline.cdx.json", 0o644, bom},
		{"tautline", 0o755, b.content},
	}, licenses...), created)
	if err != nil {
		return platformImage{}, err
	}
	layer, err := tarball.LayerFromOpener(
		func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(content)), nil },
		tarball.WithMediaType(types.OCILayer),
		tarball.WithCompressionLevel(gzip.BestCompression),
		tarball.WithCompressedCaching)
	if err != nil {
		return platformImage{}, err
	}
	size, err := layer.Size()
	if err != nil {
		return platformImage{}, err
	}

	labels := map[string]string{
		"org.opencontainers.image.title":       app.Name,
		"org.opencontainers.image.description": app.Description,
		"org.opencontainers.image.version":     app.Version,
		"org.opencontainers.image.licenses":    app.License,
		"org.opencontainers.image.created":     created.Format(time.RFC3339),
	}
	if source != "" {
		labels["org.opencontainers.image.source"] = source
	}
	image := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	image, err = mutate.ConfigFile(image, &v1.ConfigFile{
		OS:           "linux",
		Architecture: b.arch,
		Created:      v1.Time{Time: created},
		Config: v1.Config{
			User:       user,
			Entrypoint: []string{"/tautline"},
			WorkingDir: "/",
			Labels:     labels,
		},
		RootFS: v1.RootFS{Type: "layers"},
	})
	if err != nil {
		return platformImage{}, err
	}
	image, err = mutate.Append(image, mutate.Addendum{
		Layer:   layer,
		History: v1.History{Created: v1.Time{Time: created}, CreatedBy: "deploy/image/build"},
	})
	if err != nil {
		return platformImage{}, err
	}
	return platformImage{
		Image:        mutate.Annotations(image, labels).(v1.Image),
		arch:         b.arch,
		sbom:         bom,
		annotations:  labels,
		compressed:   size,
		uncompressed: int64(len(content)),
	}, nil
}

func licenses(root string, b *binary, crates []*crate) ([]file, error) {
	own, err := os.ReadFile(filepath.Join(root, "LICENSE"))
	if err != nil {
		return nil, err
	}
	thirdParty, err := thirdPartyLicenses(crates)
	if err != nil {
		return nil, err
	}
	files := []file{{"licenses/LICENSE", 0o644, own}, {"licenses/THIRD-PARTY", 0o644, thirdParty}}
	installed := map[string]string{}
	if b.rust != "" {
		sysroot, err := exec.Command("rustc", "--print", "sysroot").Output()
		if err != nil {
			return nil, fmt.Errorf("rustc: %w", err)
		}
		installed["licenses/rust-std.html"] = filepath.Join(strings.TrimSpace(string(sysroot)), "share/doc/rust/COPYRIGHT-library.html")
	}
	if b.glibc != nil {
		installed["licenses/glibc"] = "/usr/share/doc/libc6/copyright"
		installed["licenses/LGPL-2.1"] = "/usr/share/common-licenses/LGPL-2.1"
	}
	if b.reader != nil {
		installed["licenses/glibc"] = "/usr/share/doc/libc6/copyright"
		installed["licenses/LGPL-2.1"] = "/usr/share/common-licenses/LGPL-2.1"
		if b.reader.gcc != nil {
			installed["licenses/libgcc"] = "/usr/share/doc/libgcc-s1/copyright"
			installed["licenses/GPL-3"] = "/usr/share/common-licenses/GPL-3"
		}
	}
	for path, from := range installed {
		content, err := os.ReadFile(from)
		if os.IsNotExist(err) {
			fmt.Fprintf(os.Stderr, "image: no /%s: this machine has no %s\n", path, from)
			continue
		}
		if err != nil {
			return nil, err
		}
		files = append(files, file{path, 0o644, content})
	}
	return files, nil
}

// The files in order, each directory before its content. All belong to root.
func layerTar(files []file, modified time.Time) ([]byte, error) {
	entries := map[string]file{}
	for _, f := range files {
		entries[f.path] = f
		for dir := filepath.Dir(f.path); dir != "."; dir = filepath.Dir(dir) {
			entries[dir+"/"] = file{path: dir + "/", mode: 0o755}
		}
	}
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, path := range slices.Sorted(maps.Keys(entries)) {
		f := entries[path]
		header := &tar.Header{
			Name: f.path, Mode: f.mode, Size: int64(len(f.content)), ModTime: modified,
			Typeflag: tar.TypeReg, Uname: "root", Gname: "root",
		}
		if strings.HasSuffix(f.path, "/") {
			header.Typeflag = tar.TypeDir
		}
		if err := w.WriteHeader(header); err != nil {
			return nil, err
		}
		if _, err := w.Write(f.content); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// Writes the OCI layout with one index of all platforms, and for each platform
// the archive and the SBOM. Returns the digest of the index.
func write(out string, reference name.Tag, images []platformImage) (v1.Hash, error) {
	var index v1.ImageIndex = mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, image := range images {
		index = mutate.AppendManifests(index, mutate.IndexAddendum{
			Add:        image.Image,
			Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: image.arch}},
		})
	}
	index = mutate.Annotations(index, images[0].annotations).(v1.ImageIndex)
	digest, err := index.Digest()
	if err != nil {
		return v1.Hash{}, err
	}

	// Nothing else: the directory may hold other files.
	for _, stale := range []string{"oci", "amd64.tar", "arm64.tar", "amd64.cdx.json", "arm64.cdx.json"} {
		if err := os.RemoveAll(filepath.Join(out, stale)); err != nil {
			return v1.Hash{}, err
		}
	}
	path, err := layout.Write(filepath.Join(out, "oci"), empty.Index)
	if err != nil {
		return v1.Hash{}, err
	}
	if err := path.AppendIndex(index, layout.WithAnnotations(map[string]string{
		"org.opencontainers.image.ref.name": reference.TagStr(),
		"io.containerd.image.name":          strings.Replace(reference.Name(), name.DefaultRegistry, "docker.io", 1),
	})); err != nil {
		return v1.Hash{}, err
	}
	for _, image := range images {
		if err := os.WriteFile(filepath.Join(out, image.arch+".cdx.json"), image.sbom, 0o644); err != nil {
			return v1.Hash{}, err
		}
		if err := tarball.WriteToFile(filepath.Join(out, image.arch+".tar"), reference, image.Image); err != nil {
			return v1.Hash{}, err
		}
	}
	return digest, nil
}
