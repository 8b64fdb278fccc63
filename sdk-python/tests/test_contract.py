"""Compares the generated code with the repository's contracts, whose descriptors CI keeps current."""

import unittest
from pathlib import Path

from google.protobuf.descriptor_pb2 import DescriptorProto, FileDescriptorProto, FileDescriptorSet

from tautline_sdk.proto import allocator_pb2, ruleprovider_pb2

DESCRIPTORS = Path(__file__).parents[2] / "proto/src/generated/descriptors.bin"


def bare(file: FileDescriptorProto) -> FileDescriptorProto:
    """Leaves out what compilers may set or not."""

    def clear(message: DescriptorProto) -> None:
        for field in message.field:
            field.ClearField("json_name")
        for nested in message.nested_type:
            clear(nested)

    file.ClearField("source_code_info")
    file.ClearField("options")
    for message in file.message_type:
        clear(message)
    return file


@unittest.skipUnless(DESCRIPTORS.exists(), "not in Tautline's repository")
class ContractTest(unittest.TestCase):
    def test_generated_code_has_the_current_contracts(self) -> None:
        current = {file.name: bare(file) for file in FileDescriptorSet.FromString(DESCRIPTORS.read_bytes()).file}
        for module in (ruleprovider_pb2, allocator_pb2):
            generated = FileDescriptorProto()
            module.DESCRIPTOR.CopyToProto(generated)
            name = generated.name
            self.assertEqual(bare(generated), current[name], f"{name} has changed: run sdk-python/generate")
