module machinist/sbom

go 1.19
