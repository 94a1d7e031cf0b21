package sbom_test

import (
	"bytes"
	"encoding/json"
	"os"
	"strings"
	"testing"

	"example.com/watertight/tools/images/sbom"
)

func TestSBOM_ListsWhatThisProgramIsLinkedFrom(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	parts, err := sbom.GoParts(self)
	if err != nil {
		t.Fatal(err)
	}
	if len(parts) < 2 || parts[1].Name != "stdlib" || !strings.HasPrefix(parts[1].PURL, "pkg:golang/stdlib@1.") {
		t.Errorf("parts: got %+v, want the standard library in the second place", parts)
	}
}

func TestSBOM_IsValidAndTheSameEachTime(t *testing.T) {
	parts := []sbom.Part{
		{Name: "example.com/a", Version: "v1.2.3", PURL: "pkg:golang/example.com/a@v1.2.3"},
		sbom.DebianPart("debian", "libc6", "2.36-9+deb12u14", "amd64"),
	}
	first, err := sbom.Document("watertight/app-amd64", "sha-1", parts)
	if err != nil {
		t.Fatal(err)
	}
	second, err := sbom.Document("watertight/app-amd64", "sha-1", parts)
	if err != nil || !bytes.Equal(first, second) {
		t.Fatalf("a second document differs: %v", err)
	}
	var doc struct {
		SPDXVersion       string
		DocumentNamespace string
		Packages          []struct {
			SPDXID, VersionInfo string
			ExternalRefs        []struct{ ReferenceLocator string }
		}
		Relationships []struct{ SPDXElementID, RelationshipType, RelatedSPDXElement string }
	}
	if err := json.Unmarshal(first, &doc); err != nil {
		t.Fatal(err)
	}
	if doc.SPDXVersion != "SPDX-2.3" || !strings.HasPrefix(doc.DocumentNamespace, "https://") {
		t.Errorf("got version %q, namespace %q", doc.SPDXVersion, doc.DocumentNamespace)
	}
	if len(doc.Packages) != 3 || len(doc.Relationships) != 3 {
		t.Fatalf("got %d packages and %d relationships, want the image and two parts, all related", len(doc.Packages), len(doc.Relationships))
	}
	// + means a blank in a query: a purl has to escape it.
	if got, want := doc.Packages[2].ExternalRefs[0].ReferenceLocator, "pkg:deb/debian/libc6@2.36-9%2Bdeb12u14?arch=amd64"; got != want {
		t.Errorf("purl: got %s, want %s", got, want)
	}
}
