// archive writes a container image of one layer as a docker-archive. The same
// files give the same image.
//
//	archive [-entrypoint PATH] [-env NAME=VALUE]... [-link PATH=TARGET]... OUT NAME:TAG FILE=PATH...
package main

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"os"
	"path"
	"runtime"
	"strings"
)

func main() {
	log.SetFlags(0)
	log.SetPrefix("archive: ")
	entrypoint := flag.String("entrypoint", "", "`PATH` of the program that runs")
	var links, env []string
	flag.Func("env", "an environment variable, `NAME=VALUE`", func(s string) error {
		env = append(env, s)
		return nil
	})
	flag.Func("link", "a symbolic link, `PATH=TARGET`", func(s string) error {
		links = append(links, s)
		return nil
	})
	flag.Parse()
	if flag.NArg() < 3 {
		flag.Usage()
		os.Exit(2)
	}
	layer, err := packLayer(flag.Args()[2:], links)
	if err != nil {
		log.Fatal(err)
	}
	image, err := wrapImage(flag.Arg(1), *entrypoint, env, layer)
	if err != nil {
		log.Fatal(err)
	}
	// Renamed when complete: a reader never finds a part.
	if err := os.WriteFile(flag.Arg(0)+".new", image, 0o644); err != nil {
		log.Fatal(err)
	}
	if err := os.Rename(flag.Arg(0)+".new", flag.Arg(0)); err != nil {
		log.Fatal(err)
	}
}

// writer adds the folders of a path before the path itself.
type writer struct {
	*tar.Writer
	folders map[string]bool
}

func (w writer) folder(name string) error {
	if name == "." || w.folders[name] {
		return nil
	}
	if err := w.folder(path.Dir(name)); err != nil {
		return err
	}
	w.folders[name] = true
	mode := int64(0o755)
	if name == "tmp" {
		mode = 0o1777
	}
	return w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: name + "/", Mode: mode})
}

func (w writer) add(header tar.Header, content []byte) error {
	if err := w.folder(path.Dir(header.Name)); err != nil {
		return err
	}
	header.Size = int64(len(content))
	if err := w.WriteHeader(&header); err != nil {
		return err
	}
	_, err := w.Write(content)
	return err
}

func packLayer(files, links []string) ([]byte, error) {
	var out bytes.Buffer
	w := writer{tar.NewWriter(&out), map[string]bool{}}
	if err := w.folder("tmp"); err != nil {
		return nil, err
	}
	for _, f := range files {
		source, target, ok := strings.Cut(f, "=")
		if !ok {
			return nil, fmt.Errorf("%q is not FILE=PATH", f)
		}
		content, err := os.ReadFile(source)
		if err != nil {
			return nil, err
		}
		info, err := os.Stat(source)
		if err != nil {
			return nil, err
		}
		mode := int64(0o644)
		if info.Mode()&0o111 != 0 {
			mode = 0o755
		}
		header := tar.Header{Typeflag: tar.TypeReg, Name: strings.Trim(target, "/"), Mode: mode}
		if err := w.add(header, content); err != nil {
			return nil, err
		}
	}
	for _, l := range links {
		name, target, ok := strings.Cut(l, "=")
		if !ok {
			return nil, fmt.Errorf("%q is not PATH=TARGET", l)
		}
		header := tar.Header{Typeflag: tar.TypeSymlink, Name: strings.Trim(name, "/"), Linkname: target, Mode: 0o777}
		if err := w.add(header, nil); err != nil {
			return nil, err
		}
	}
	err := w.Close()
	return out.Bytes(), err
}

// wrapImage wraps the layer with its configuration and manifest.
func wrapImage(name, entrypoint string, env []string, layer []byte) ([]byte, error) {
	type object = map[string]any
	digest := fmt.Sprintf("%x", sha256.Sum256(layer))
	process := object{"Env": append([]string{"PATH=/usr/local/bin:/usr/bin:/bin"}, env...)}
	if entrypoint != "" {
		process["Entrypoint"] = []string{entrypoint}
	}
	config, err := json.Marshal(object{
		"architecture": runtime.GOARCH,
		"os":           "linux",
		"config":       process,
		"rootfs":       object{"type": "layers", "diff_ids": []string{"sha256:" + digest}},
	})
	if err != nil {
		return nil, err
	}
	configName := fmt.Sprintf("%x.json", sha256.Sum256(config))
	layerName := digest + "/layer.tar"
	manifest, err := json.Marshal([]object{{"Config": configName, "RepoTags": []string{name}, "Layers": []string{layerName}}})
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	w := writer{tar.NewWriter(&out), map[string]bool{}}
	for _, member := range []struct {
		name    string
		content []byte
	}{{configName, config}, {layerName, layer}, {"manifest.json", manifest}} {
		if err := w.add(tar.Header{Typeflag: tar.TypeReg, Name: member.name, Mode: 0o644}, member.content); err != nil {
			return nil, err
		}
	}
	err = w.Close()
	return out.Bytes(), err
}
