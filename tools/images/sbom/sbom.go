// Package sbom writes the list of what an image is made of as an SPDX 2.3 document in JSON. The same parts give the same
// bytes: it has no time of creation but the epoch, and a namespace that follows from the content.
package sbom

import (
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/json"
	"fmt"
	"net/url"
	"runtime/debug"
	"slices"
	"strings"
)

// Part is one component of an image.
type Part struct {
	Name, Version string
	PURL          string // https://github.com/package-url/purl-spec
}

// GoParts lists what the Go program in file was linked from: its own module first, then the standard library and the
// modules, each in the version that was built, by path.
func GoParts(file string) ([]Part, error) {
	info, err := buildinfo.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("sbom: build info of %s: %w", file, err)
	}
	goVersion := strings.TrimPrefix(info.GoVersion, "go")
	parts := []Part{goPart(info.Main), {Name: "stdlib", Version: goVersion, PURL: "pkg:golang/stdlib@" + goVersion}}
	modules := make([]Part, 0, len(info.Deps))
	for _, dep := range info.Deps {
		modules = append(modules, goPart(*dep))
	}
	slices.SortFunc(modules, func(a, b Part) int { return strings.Compare(a.Name, b.Name) })
	return append(parts, modules...), nil
}

func goPart(m debug.Module) Part {
	// A replacement by a folder has no version of its own; it is a part of this repository.
	if m.Replace != nil && m.Replace.Version != "" {
		m = *m.Replace
	}
	part := Part{Name: m.Path, Version: strings.Trim(m.Version, "()"), PURL: "pkg:golang/" + m.Path}
	if strings.HasPrefix(part.Version, "v") {
		part.PURL += "@" + part.Version
	}
	return part
}

// DebianPart is a Debian package; source is "debian" or what else /etc/os-release calls the distribution.
func DebianPart(distribution, name, version, arch string) Part {
	purl := "pkg:deb/" + distribution + "/" + name + "@" + url.QueryEscape(version) + "?arch=" + arch
	return Part{Name: name, Version: version, PURL: purl}
}

type document struct {
	SPDXVersion   string         `json:"spdxVersion"`
	DataLicense   string         `json:"dataLicense"`
	ID            string         `json:"SPDXID"`
	Name          string         `json:"name"`
	Namespace     string         `json:"documentNamespace"`
	Creation      creation       `json:"creationInfo"`
	Packages      []spdxPackage  `json:"packages"`
	Relationships []relationship `json:"relationships"`
}

type creation struct {
	Created  string   `json:"created"`
	Creators []string `json:"creators"`
}

type spdxPackage struct {
	ID               string        `json:"SPDXID"`
	Name             string        `json:"name"`
	Version          string        `json:"versionInfo,omitempty"`
	DownloadLocation string        `json:"downloadLocation"`
	FilesAnalyzed    bool          `json:"filesAnalyzed"`
	LicenseConcluded string        `json:"licenseConcluded"`
	LicenseDeclared  string        `json:"licenseDeclared"`
	Copyright        string        `json:"copyrightText"`
	Purpose          string        `json:"primaryPackagePurpose,omitempty"`
	Refs             []externalRef `json:"externalRefs,omitempty"`
}

type externalRef struct {
	Category string `json:"referenceCategory"`
	Type     string `json:"referenceType"`
	Locator  string `json:"referenceLocator"`
}

type relationship struct {
	From string `json:"spdxElementId"`
	Type string `json:"relationshipType"`
	To   string `json:"relatedSpdxElement"`
}

// Document describes the image of that name and version as containing parts.
func Document(name, version string, parts []Part) ([]byte, error) {
	const root = "SPDXRef-image"
	doc := document{
		SPDXVersion: "SPDX-2.3", DataLicense: "CC0-1.0", ID: "SPDXRef-DOCUMENT", Name: name,
		Creation:      creation{Created: "1970-01-01T00:00:00Z", Creators: []string{"Tool: watertight-images"}},
		Packages:      []spdxPackage{newPackage(root, name, version)},
		Relationships: []relationship{{From: "SPDXRef-DOCUMENT", Type: "DESCRIBES", To: root}},
	}
	doc.Packages[0].Purpose = "CONTAINER"
	for i, part := range parts {
		id := fmt.Sprintf("SPDXRef-part-%d", i+1)
		p := newPackage(id, part.Name, part.Version)
		p.Refs = []externalRef{{Category: "PACKAGE-MANAGER", Type: "purl", Locator: part.PURL}}
		doc.Packages = append(doc.Packages, p)
		doc.Relationships = append(doc.Relationships, relationship{From: root, Type: "CONTAINS", To: id})
	}
	content, err := json.Marshal(doc)
	if err != nil {
		return nil, fmt.Errorf("sbom: %w", err)
	}
	doc.Namespace = fmt.Sprintf("https://example.com/watertight/spdx/%s-%x", url.PathEscape(name), sha256.Sum256(content))
	out, err := json.MarshalIndent(doc, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("sbom: %w", err)
	}
	return append(out, '\n'), nil
}

func newPackage(id, name, version string) spdxPackage {
	const unsaid = "NOASSERTION"
	return spdxPackage{
		ID: id, Name: name, Version: version, DownloadLocation: unsaid, LicenseConcluded: unsaid, LicenseDeclared: unsaid, Copyright: unsaid,
	}
}
