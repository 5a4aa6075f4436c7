// Writes the bill of materials of the binary: a CycloneDX document of every crate that is linked into it.
//
//	cargo metadata --locked --format-version 1 | sbom Cargo.lock
//
// The output is reproducible: the serial number is derived from the content, and the time is
// SOURCE_DATE_EPOCH.
package main

import (
	"bufio"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"sort"
	"strconv"
	"strings"
	"time"
)

const root = "machinist"

type metadata struct {
	Packages []struct {
		ID, Name, Version   string
		License, Repository *string
		Source              *string
	}
	Resolve struct {
		Nodes []struct {
			ID   string
			Deps []struct {
				Pkg      string
				DepKinds []struct{ Kind *string } `json:"dep_kinds"`
			}
		}
	}
}

type hash struct {
	Algorithm string `json:"alg"`
	Content   string `json:"content"`
}

type license struct {
	Expression string `json:"expression"`
}

type reference struct {
	Type string `json:"type"`
	URL  string `json:"url"`
}

type component struct {
	Type       string      `json:"type"`
	Ref        string      `json:"bom-ref"`
	Name       string      `json:"name"`
	Version    string      `json:"version"`
	Hashes     []hash      `json:"hashes,omitempty"`
	Licenses   []license   `json:"licenses,omitempty"`
	URL        string      `json:"purl"`
	References []reference `json:"externalReferences,omitempty"`
}

type dependency struct {
	Ref       string   `json:"ref"`
	DependsOn []string `json:"dependsOn"`
}

type document struct {
	Format   string `json:"bomFormat"`
	Spec     string `json:"specVersion"`
	Serial   string `json:"serialNumber,omitempty"`
	Version  int    `json:"version"`
	Metadata struct {
		Timestamp string    `json:"timestamp,omitempty"`
		Component component `json:"component"`
	} `json:"metadata"`
	Components   []component  `json:"components"`
	Dependencies []dependency `json:"dependencies"`
}

func main() {
	if len(os.Args) != 2 {
		fail("usage: cargo metadata --locked --format-version 1 | sbom Cargo.lock")
	}
	var found metadata
	check(json.NewDecoder(os.Stdin).Decode(&found), "read cargo's metadata")
	made, err := assemble(&found, checksums(os.Args[1]))
	check(err, "make the document")
	encoder := json.NewEncoder(os.Stdout)
	encoder.SetIndent("", "  ")
	encoder.SetEscapeHTML(false)
	check(encoder.Encode(made), "write the document")
}

func assemble(found *metadata, sums map[string]string) (*document, error) {
	components, start := map[string]component{}, ""
	for _, it := range found.Packages {
		url := fmt.Sprintf("pkg:cargo/%s@%s", it.Name, it.Version)
		one := component{Type: "library", Ref: url, Name: it.Name, Version: it.Version, URL: url}
		if it.License != nil {
			// Cargo once took a slash for "or".
			one.Licenses = []license{{strings.ReplaceAll(*it.License, "/", " OR ")}}
		}
		if it.Repository != nil {
			one.References = []reference{{"vcs", *it.Repository}}
		}
		if sum := sums[it.Name+" "+it.Version]; sum != "" {
			one.Hashes = []hash{{"SHA-256", sum}}
		}
		if it.Name == root && it.Source == nil {
			one.Type, start = "application", it.ID
		}
		components[it.ID] = one
	}
	if start == "" {
		return nil, fmt.Errorf("there is no package %s", root)
	}
	links := map[string][]string{}
	for _, node := range found.Resolve.Nodes {
		for _, dep := range node.Deps {
			for _, kind := range dep.DepKinds {
				// Neither what only tests need, nor what only builds.
				if kind.Kind == nil {
					links[node.ID] = append(links[node.ID], dep.Pkg)
					break
				}
			}
		}
	}
	seen, queue := map[string]bool{start: true}, []string{start}
	made := &document{Format: "CycloneDX", Spec: "1.5", Version: 1, Components: []component{}}
	made.Metadata.Component = components[start]
	for len(queue) > 0 {
		at := queue[0]
		queue = queue[1:]
		if at != start {
			made.Components = append(made.Components, components[at])
		}
		on := []string{}
		for _, next := range links[at] {
			on = append(on, components[next].Ref)
			if !seen[next] {
				seen[next] = true
				queue = append(queue, next)
			}
		}
		sort.Strings(on)
		made.Dependencies = append(made.Dependencies, dependency{components[at].Ref, on})
	}
	sort.Slice(made.Components, func(a, b int) bool { return made.Components[a].Ref < made.Components[b].Ref })
	sort.Slice(made.Dependencies, func(a, b int) bool { return made.Dependencies[a].Ref < made.Dependencies[b].Ref })
	if text := os.Getenv("SOURCE_DATE_EPOCH"); text != "" {
		seconds, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("SOURCE_DATE_EPOCH: %w", err)
		}
		made.Metadata.Timestamp = time.Unix(seconds, 0).UTC().Format(time.RFC3339)
	}
	bytes, err := json.Marshal(made)
	sum := sha256.Sum256(bytes)
	sum[6], sum[8] = sum[6]&0x0f|0x80, sum[8]&0x3f|0x80
	made.Serial = fmt.Sprintf("urn:uuid:%x-%x-%x-%x-%x", sum[0:4], sum[4:6], sum[6:8], sum[8:10], sum[10:16])
	return made, err
}

// The checksums in Cargo.lock, by "name version".
func checksums(path string) map[string]string {
	file, err := os.Open(path)
	check(err, "read the lock file")
	defer file.Close()
	sums, name, version := map[string]string{}, "", ""
	for lines := bufio.NewScanner(file); lines.Scan(); {
		key, value, is := strings.Cut(lines.Text(), " = ")
		value = strings.Trim(value, `"`)
		switch {
		case !is:
		case key == "name":
			name = value
		case key == "version":
			version = value
		case key == "checksum":
			sums[name+" "+version] = value
		}
	}
	return sums
}

func check(err error, what string) {
	if err != nil {
		fail(fmt.Sprintf("cannot %s: %v", what, err))
	}
}

func fail(message string) {
	fmt.Fprintln(os.Stderr, "error: "+message)
	os.Exit(1)
}
