package snavio

import (
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	pb "snavio.local/go/snaviov1"
)

func vectors(t *testing.T, name string, into any) {
	t.Helper()
	content, err := os.ReadFile(filepath.Join("..", "..", "tests", "vectors", name))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(content, into); err != nil {
		t.Fatal(err)
	}
}

func unhex(t *testing.T, text string) []byte {
	t.Helper()
	decoded, err := hex.DecodeString(text)
	if err != nil {
		t.Fatal(err)
	}
	return decoded
}

func TestSignsTheSharedVectors(t *testing.T) {
	var file struct {
		Worked []struct {
			Title, Secret, Payload, Command string
			SignedText                      string `json:"signed_text"`
			Fields                          map[string]string
		}
	}
	vectors(t, "commands.json", &file)
	if len(file.Worked) == 0 {
		t.Fatal("no vectors")
	}
	for _, vector := range file.Worked {
		t.Run(vector.Title, func(t *testing.T) {
			f := &Fields{
				ID: vector.Fields["id"], Timestamp: vector.Fields["timestamp"], KeyVersion: vector.Fields["key_version"],
				Audience: vector.Fields["audience"], Target: vector.Fields["target"], Name: vector.Fields["name"],
				ContentType: vector.Fields["content_type"], Traceparent: vector.Fields["traceparent"],
				Payload: unhex(t, vector.Payload),
			}
			if text := hex.EncodeToString(SignedText(f)); text != vector.SignedText {
				t.Errorf("signed text %s", text)
			}
			command := Sign(unhex(t, vector.Secret), f)
			if hex.EncodeToString(command) != vector.Command {
				t.Errorf("command %x", command)
			}
			if err := proto.Unmarshal(command, &pb.Command{}); err != nil {
				t.Error(err)
			}
		})
	}
}

type hashVector struct {
	Title, Topic string
	Runs         string `json:"runs_hex"`
	Stored       int64  `json:"stored_unix_ns"`
	PayloadHash  string `json:"payload_hash"`
	HashChain    string `json:"hash_chain"`
}

func (v *hashVector) response(t *testing.T) *pb.ReceiveResponse {
	t.Helper()
	batch := &pb.LeasedBatch{}
	if err := proto.Unmarshal(unhex(t, v.Runs), batch); err != nil {
		t.Fatal(err)
	}
	batch.BatchId, batch.First, batch.Attempt, batch.StoredUnixNs = 3, 7, 1, v.Stored
	batch.PayloadHash, batch.HashChain = unhex(t, v.PayloadHash), unhex(t, v.HashChain)
	return &pb.ReceiveResponse{BootEpoch: 1, Batch: []*pb.LeasedBatch{batch}}
}

func TestComputesTheHashesOfTheSharedVectors(t *testing.T) {
	var file struct{ Messages []hashVector }
	vectors(t, "message_hashes.json", &file)
	if len(file.Messages) == 0 {
		t.Fatal("no vectors")
	}
	for _, vector := range file.Messages {
		t.Run(vector.Title, func(t *testing.T) {
			integrity := func(response *pb.ReceiveResponse, topic string) Integrity {
				deliveries, err := ReadResponse(response, topic)
				if err != nil {
					t.Fatal(err)
				}
				return deliveries[0].Integrity
			}
			deliveries, err := ReadResponse(vector.response(t), vector.Topic)
			if err != nil || len(deliveries) != 1 {
				t.Fatal(err, len(deliveries))
			}
			one := deliveries[0]
			if hex.EncodeToString(one.PayloadHash[:]) != vector.PayloadHash ||
				hex.EncodeToString(one.HashChain[:]) != vector.HashChain || one.Integrity != Verified || one.MsgID != 3*1024+7 {
				t.Errorf("%x %x %d %d", one.PayloadHash, one.HashChain, one.Integrity, one.MsgID)
			}
			if integrity(vector.response(t), vector.Topic+"x") != NotAsStored {
				t.Error("another topic passes")
			}
			forged := vector.response(t)
			forged.Batch[0].PayloadHash = make([]byte, 32)
			if integrity(forged, vector.Topic) != NotAsStored {
				t.Error("a forged hash passes")
			}
			silent := vector.response(t)
			silent.Batch[0].PayloadHash, silent.Batch[0].HashChain = nil, nil
			if integrity(silent, vector.Topic) != Unverified {
				t.Error("nothing to compare with is not unverified")
			}
			half := vector.response(t)
			half.Batch[0].HashChain = nil
			if _, err := ReadResponse(half, vector.Topic); ReasonOf(err) != "malformed" {
				t.Error("half of the hashes are not malformed", err)
			}
		})
	}
}

func TestChoosesTheNewestKeyWhoseTimeHasCome(t *testing.T) {
	keys := []*pb.KeyVersion{
		{Version: "hmac-v1", PrimaryFromUnixNs: 10},
		{Version: "hmac-v2", PrimaryFromUnixNs: 20},
		{Version: "hmac-v3", PrimaryFromUnixNs: 1<<63 - 1},
	}
	for now, wanted := range map[int64]string{15: "hmac-v1", 20: "hmac-v2", 5: "hmac-v2"} {
		if chosen := chooseKey(keys, "hmac-v2", now); chosen.GetVersion() != wanted {
			t.Errorf("at %d: %s", now, chosen.GetVersion())
		}
	}
	if chooseKey([]*pb.KeyVersion{{Version: "hmac-v1", Revoked: true}}, "hmac-v1", 5) != nil {
		t.Error("a revoked key signs")
	}
	if chooseKey([]*pb.KeyVersion{{Version: "hmac-v1", NotAfterUnixNs: 20}}, "", 20) != nil {
		t.Error("an ended key signs")
	}
}

func TestAnUnknownCodeIsNoDelivery(t *testing.T) {
	if known(99) != OutcomeUnknown || known(1) != Delivered || ACLDeny.String() != "acl-deny" {
		t.Error(known(99), known(1), ACLDeny)
	}
}

// answered is a batch of three commands under way, and the stream that waits for its answers.
func answered(told ...*pb.Verdicts) *submitted {
	batch := &submitted{answers: make([]answer, 3), open: 3, done: make(chan struct{})}
	s := &stream{pending: map[uint64]*submitted{1: batch}, slots: make(chan struct{}, 1)}
	s.slots <- struct{}{}
	for _, one := range told {
		one.BatchSeq = 1
		s.settle(one)
	}
	return batch
}

func TestPartialAnswersDecideEachCommandOnce(t *testing.T) {
	batch := answered(
		&pb.Verdicts{Codes: []byte{1, 0, 65}, Refusal: []*pb.Refusal{{Index: 2, Reason: pb.Verdict_VERDICT_ACL_DENY, Detail: "no"}}},
		&pb.Verdicts{First: 1, Codes: []byte{70, 1}, Final: true},
	)
	<-batch.done
	told := batch.answers
	if told[0].verdict != Delivered || told[1].verdict != Saturated || told[2].verdict != ACLDeny || told[2].detail != "no" {
		t.Error(told)
	}
}

func TestAFrameThatIsRefusedAsAWholeLeavesNothingInDoubt(t *testing.T) {
	refusal := []*pb.Refusal{{Reason: pb.Verdict_VERDICT_OVERSIZED}}
	for _, one := range answered(&pb.Verdicts{Refusal: refusal, Final: true}).answers {
		if one.verdict != Oversized {
			t.Error(one)
		}
	}
	for _, one := range answered(&pb.Verdicts{Codes: []byte{1}}, &pb.Verdicts{Final: true}).answers[1:] {
		if one.verdict != OutcomeUnknown {
			t.Error(one)
		}
	}
}

func TestATokenOfAnotherInstallationIsNotSent(t *testing.T) {
	token := "snv1." + strings.Repeat("ab", 32) + "." + strings.Repeat("a", 56)
	_, err := Enrol(t.Context(), Enrolment{
		Address: "127.0.0.1:1", Fingerprint: strings.Repeat("cd", 32), Token: token, Folder: t.TempDir(),
	})
	if ReasonOf(err) != "wrong-installation" {
		t.Error(err)
	}
}

func TestAFolderIsReplacedAsAWhole(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "certs")
	for _, content := range []string{"1", "2", "3"} {
		if err := writeFolder(folder, []byte("c"+content), []byte("k"+content), []byte("a"+content)); err != nil {
			t.Fatal(err)
		}
		for file, letter := range map[string]string{certificateFile: "c", privateKeyFile: "k", caFile: "a"} {
			found, err := os.ReadFile(filepath.Join(folder, file))
			if err != nil || string(found) != letter+content {
				t.Error(file, string(found), err)
			}
		}
	}
	if old, _ := filepath.Glob(filepath.Join(folder, generation+"*")); len(old) != 2 {
		t.Error(old)
	}
}
