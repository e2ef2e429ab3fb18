package snavio

import (
	"os"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"

	pb "snavio.local/go/snaviov1"
)

// The run of tests/conformance says in SNAVIO_DESCRIPTORS where the protos of this tree are described.
func TestGeneratedCodeIsThatOfTheProtos(t *testing.T) {
	path := os.Getenv("SNAVIO_DESCRIPTORS")
	if path == "" {
		t.Skip("SNAVIO_DESCRIPTORS is not set")
	}
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var set descriptorpb.FileDescriptorSet
	if err := proto.Unmarshal(content, &set); err != nil {
		t.Fatal(err)
	}
	protos := map[string]*descriptorpb.FileDescriptorProto{}
	for _, file := range set.GetFile() {
		protos[file.GetName()] = file
	}
	for _, file := range []protoreflect.FileDescriptor{
		pb.File_snavio_v1_batch_proto, pb.File_snavio_v1_command_proto, pb.File_snavio_v1_enrolment_proto,
		pb.File_snavio_v1_mailbox_proto, pb.File_snavio_v1_shield_proto, pb.File_snavio_v1_signer_proto,
	} {
		generated := protodesc.ToFileDescriptorProto(file)
		wanted := protos[file.Path()]
		// protoc leaves a field's JSON name out of the code, and derives it.
		if wanted == nil || !proto.Equal(withoutJSONNames(generated), withoutJSONNames(wanted)) {
			t.Errorf("%s has changed since; run `make proto-go`", strings.TrimPrefix(file.Path(), "snavio/v1/"))
		}
	}
}

func withoutJSONNames(file *descriptorpb.FileDescriptorProto) *descriptorpb.FileDescriptorProto {
	var strip func([]*descriptorpb.DescriptorProto)
	strip = func(messages []*descriptorpb.DescriptorProto) {
		for _, message := range messages {
			for _, field := range message.GetField() {
				field.JsonName = nil
			}
			strip(message.GetNestedType())
		}
	}
	strip(file.GetMessageType())
	file.SourceCodeInfo = nil
	return file
}
