// Builds release archives. A module of its own so that "go test ./..." and importers of
// Carillon don't see it.
module github.com/carillon-dev/carillon/tools/release

go 1.26.0
