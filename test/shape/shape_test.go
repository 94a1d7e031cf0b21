package shape_test

import (
	"testing"

	"example.com/watertight/test/shape"
)

func TestOf_ReducesADocumentToKeysAndTypes(t *testing.T) {
	for document, want := range map[string]string{
		`{"b":"x","a":{"y":1,"x":1.5}}`:            `{a:{x:number,y:integer},b:string}`,
		`{"a":[1,"x",2],"b":[],"c":null,"d":true}`: `{a:[integer|string],b:[],c:null,d:boolean}`,
		`[{"a":1},{"a":2},{"a":1,"b":""}]`:         `[{a:integer,b:string}|{a:integer}]`,
		`9223372036854775808`:                      `integer`,
		`1e3`:                                      `number`,
	} {
		got, err := shape.Of(document)
		if err != nil || got != want {
			t.Errorf("%s: got %s (%v), want %s", document, got, err, want)
		}
	}
	if got, err := shape.Of(`{"a":`); err == nil {
		t.Errorf("half a document: got %s, want an error", got)
	}
}
