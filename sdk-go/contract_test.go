package tautline

import (
	"os"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	"tautline.io/sdk-go/allocator"
	"tautline.io/sdk-go/ruleprovider"
)

// Compares the generated code with the repository's contracts, whose descriptors CI keeps current.
func TestGeneratedCodeHasTheCurrentContracts(t *testing.T) {
	encoded, err := os.ReadFile("../proto/src/generated/descriptors.bin")
	if err != nil {
		t.Skip("skipped: not in Tautline's repository: ", err)
	}
	set := &descriptorpb.FileDescriptorSet{}
	if err := proto.Unmarshal(encoded, set); err != nil {
		t.Fatal(err)
	}
	current := map[string]*descriptorpb.FileDescriptorProto{}
	for _, file := range set.File {
		current[file.GetName()] = bare(file)
	}
	for _, file := range []protoreflect.FileDescriptor{ruleprovider.File_ruleprovider_proto, allocator.File_allocator_proto} {
		generated := bare(protodesc.ToFileDescriptorProto(file))
		if want := current[file.Path()]; !proto.Equal(generated, want) {
			t.Errorf("%s has changed: run sdk-go/generate\ngenerated %v\ncurrent %v", file.Path(), generated, want)
		}
	}
}

// bare leaves out what compilers may set or not.
func bare(file *descriptorpb.FileDescriptorProto) *descriptorpb.FileDescriptorProto {
	file.SourceCodeInfo, file.Options = nil, nil
	var clear func(*descriptorpb.DescriptorProto)
	clear = func(message *descriptorpb.DescriptorProto) {
		for _, field := range message.Field {
			field.JsonName = nil
		}
		for _, nested := range message.NestedType {
			clear(nested)
		}
	}
	for _, message := range file.MessageType {
		clear(message)
	}
	return file
}
