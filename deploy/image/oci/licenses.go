package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

var licenseFile = regexp.MustCompile(`(?i)^(licen[cs]e|copying|copyright|notice|unlicense)([._-].*)?$`)

// One text and the crates that carry it.
type licenseText struct {
	text  string
	users []string
}

// The list of the other crates with their licences, then each text once.
func thirdPartyLicenses(crates []*crate) ([]byte, error) {
	var out bytes.Buffer
	out.WriteString("Third-party software in tautline and tautline-nvml\n\n")
	var texts []*licenseText
	byText := map[string]*licenseText{}
	for _, c := range crates {
		if !c.foreign() {
			continue
		}
		files, err := licenseFiles(c)
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(&out, "%s %s: %s\n", c.Name, c.Version, spdx(c.License))
		if len(files) == 0 {
			// The texts of the licences come from other crates.
			fmt.Fprintf(&out, "    by %s; %s\n", strings.Join(c.Authors, ", "), c.Repository)
		}
		for _, path := range files {
			content, err := os.ReadFile(path)
			if err != nil {
				return nil, err
			}
			text := strings.TrimSpace(strings.ReplaceAll(string(content), "\r\n", "\n"))
			key := strings.Join(strings.Fields(text), " ")
			if byText[key] == nil {
				byText[key] = &licenseText{text: text}
				texts = append(texts, byText[key])
			}
			user := c.Name + " " + c.Version
			if !slices.Contains(byText[key].users, user) {
				byText[key].users = append(byText[key].users, user)
			}
		}
	}
	for _, t := range texts {
		fmt.Fprintf(&out, "\n%s\n%s\n\n%s\n", strings.Repeat("=", 80), strings.Join(t.users, ", "), t.text)
	}
	return out.Bytes(), nil
}

func licenseFiles(c *crate) ([]string, error) {
	dir := filepath.Dir(c.ManifestPath)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("the source of %s: %w", c.Name, err)
	}
	var files []string
	for _, entry := range entries {
		if entry.Type().IsRegular() && licenseFile.MatchString(entry.Name()) {
			files = append(files, filepath.Join(dir, entry.Name()))
		}
	}
	return files, nil
}

// Old manifests separate alternatives by a slash.
func spdx(expression string) string {
	parts := strings.Split(expression, "/")
	for i := range parts {
		parts[i] = strings.TrimSpace(parts[i])
	}
	return strings.Join(parts, " OR ")
}
