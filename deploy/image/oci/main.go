// Command oci makes the container image of Tautline from static binaries,
// without a container engine. deploy/image/build runs it.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		if !errors.Is(err, flag.ErrHelp) {
			fmt.Fprintln(os.Stderr, "image:", err)
		}
		os.Exit(1)
	}
}

func run(args []string) error {
	flags := flag.NewFlagSet("oci", flag.ContinueOnError)
	root := flags.String("root", ".", "root of the repository")
	out := flags.String("out", "", "directory for the image")
	tag := flags.String("tag", "", "NAME:TAG of the image")
	source := flags.String("source", "", "URL of the source, for the label")
	created := flags.String("created", "", "creation time, in seconds since 1970")
	command := flags.String("command-for", "", "no image: the licences and the SBOM of the command for this target triple")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *out != "" && *command != "" {
		return describeCommand(*root, *out, *command)
	}
	if *out == "" || *tag == "" || flags.NArg() == 0 {
		return errors.New("usage: oci --out DIR --tag NAME:TAG --created SECONDS BINARY...")
	}
	reference, err := name.NewTag(*tag)
	if err != nil {
		return fmt.Errorf("--tag: %w", err)
	}
	if !strings.HasSuffix(*tag, ":"+reference.TagStr()) {
		return fmt.Errorf("--tag %s has no tag; an example is tautline:0.1.0", *tag)
	}
	seconds, err := strconv.ParseInt(*created, 10, 64)
	if err != nil {
		return fmt.Errorf("--created: %w", err)
	}

	var images []platformImage
	for _, path := range flags.Args() {
		binary, err := readBinary(path)
		if err != nil {
			return err
		}
		if binary.reader, err = readReader(filepath.Dir(path), binary); err != nil {
			return err
		}
		if binary.reader == nil {
			fmt.Fprintf(os.Stderr, "image: no tautline-nvml beside %s: GPU agents of this image find no cards\n", path)
		}
		for _, other := range images {
			if other.arch == binary.arch {
				return fmt.Errorf("%s: a second binary for %s", path, binary.arch)
			}
		}
		crates, err := linkedCrates(*root, binary.triple(), "tautline", "tautline-nvml")
		if err != nil {
			return err
		}
		image, err := build(*root, binary, crates, *source, time.Unix(seconds, 0).UTC())
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		images = append(images, image)
	}

	digest, err := write(*out, reference, images)
	if err != nil {
		return err
	}
	for _, image := range images {
		fmt.Fprintf(os.Stderr, "image: %s, linux/%s: %s compressed, %s uncompressed\n",
			filepath.Join(*out, image.arch+".tar"), image.arch, megabytes(image.compressed), megabytes(image.uncompressed))
	}
	fmt.Fprintf(os.Stderr, "image: %s@%s\n", reference, digest)
	return nil
}

// describeCommand writes the licences and the SBOM of the command as other systems have it.
func describeCommand(root, out, triple string) error {
	version, err := exec.Command("rustc", "--version").Output()
	if err != nil {
		return fmt.Errorf("rustc: %w", err)
	}
	b := &binary{rust: strings.Fields(string(version))[1]}
	crates, err := linkedCrates(root, triple, "tautline")
	if err != nil {
		return err
	}
	files, err := licenses(root, b, crates)
	if err != nil {
		return err
	}
	bom, err := sbom(b, crates, time.Now().UTC())
	if err != nil {
		return err
	}
	for _, f := range append(files, file{"tautline.cdx.json", 0o644, bom}) {
		path := filepath.Join(out, filepath.FromSlash(f.path))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, f.content, fs.FileMode(f.mode)); err != nil {
			return err
		}
	}
	return nil
}

func megabytes(bytes int64) string {
	return fmt.Sprintf("%.1f MB", float64(bytes)/1e6)
}
