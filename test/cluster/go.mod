module example.com/watertight/test/cluster

go 1.26.0

replace example.com/watertight/tools/images => ../../tools/images

require (
	example.com/watertight/tools/images v0.0.0
	github.com/google/go-cmp v0.7.0
	github.com/klauspost/compress v1.20.4
)

require (
	github.com/google/go-containerregistry v0.22.1 // indirect
	github.com/opencontainers/go-digest v1.0.0 // indirect
	github.com/opencontainers/image-spec v1.1.1 // indirect
)
