"""One module per API, each with its request, its response and their nested structs."""
