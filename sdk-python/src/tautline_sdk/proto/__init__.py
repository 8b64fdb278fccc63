"""The generated code of the contracts: ruleprovider and allocator."""
