package rls_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"
	"pgregory.net/rapid"

	"github.com/sluiceproject/sluice/cmd/internal/edge/rls"
)

// wide are bounds that no message of a test exceeds.
var wide = rls.Bounds{Descriptors: 1 << 20, Message: 1 << 30}

// full is a request with all fields.
func full() *pb.RateLimitRequest {
	entry := func(k, v string) *common.RateLimitDescriptor_Entry {
		return &common.RateLimitDescriptor_Entry{Key: k, Value: v}
	}
	return &pb.RateLimitRequest{
		Domain: "d", HitsAddend: 1 << 31,
		Descriptors: []*common.RateLimitDescriptor{
			{Entries: []*common.RateLimitDescriptor_Entry{entry("a", "1"), entry("é", ""), entry("", "x")}},
			{},
			{
				Entries:    []*common.RateLimitDescriptor_Entry{entry("b", strings.Repeat("x", 300))},
				Limit:      &common.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: 7, Unit: 3, UnitMultiplier: wrapperspb.UInt32(9)},
				HitsAddend: wrapperspb.UInt64(1 << 63), IsNegativeHits: true,
			},
			{HitsAddend: wrapperspb.UInt64(0), Limit: &common.RateLimitDescriptor_RateLimitOverride{Unit: -1}},
		},
	}
}

// checkDecode fails the test unless the parser decodes b like the generated code or both return an error. Only the parser
// accepts entries that are not UTF-8.
func checkDecode(t testing.TB, b []byte) {
	t.Helper()
	var want pb.RateLimitRequest
	wantErr := proto.Unmarshal(b, &want)
	var got rls.Request
	gotErr := got.Decode(b, wide)
	if gotErr == nil && wantErr != nil && strings.Contains(wantErr.Error(), "invalid UTF-8") {
		return
	}
	if (gotErr == nil) != (wantErr == nil) {
		t.Fatalf("%x: the error is %v, of the generated code %v", b, gotErr, wantErr)
	}
	if gotErr != nil {
		return
	}
	forget(&want)
	if !proto.Equal(got.Proto(), &want) {
		t.Fatalf("%x: decoded as %v, by the generated code as %v", b, got.Proto(), &want)
	}
	var again rls.Request
	again.FromProto(&want)
	if !proto.Equal(again.Proto(), &want) {
		t.Fatalf("%v becomes %v", &want, again.Proto())
	}
}

// forget removes the parts that the parser drops: unknown fields, and a multiplier of 0, which means none.
func forget(m *pb.RateLimitRequest) {
	m.ProtoReflect().SetUnknown(nil)
	for _, d := range m.GetDescriptors() {
		d.ProtoReflect().SetUnknown(nil)
		for _, e := range d.GetEntries() {
			e.ProtoReflect().SetUnknown(nil)
		}
		if hits := d.GetHitsAddend(); hits != nil {
			hits.ProtoReflect().SetUnknown(nil)
		}
		if limit := d.GetLimit(); limit != nil {
			limit.ProtoReflect().SetUnknown(nil)
			if times := limit.GetUnitMultiplier(); times.GetValue() == 0 {
				limit.UnitMultiplier = nil
			} else {
				times.ProtoReflect().SetUnknown(nil)
			}
		}
	}
}

func FuzzRequest(f *testing.F) {
	for _, m := range []*pb.RateLimitRequest{{}, full(), request("d", "k", "v")} {
		b, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
		f.Add(b[:len(b)/2])
		f.Add(append(b, b...)) // repeated fields are merged
		f.Add(protowire.AppendTag(b, 99, protowire.StartGroupType))
	}
	f.Add([]byte("\x0a\x01\xff"))                                 // not UTF-8
	f.Add([]byte("\x12\x05\x0a\x03\x12\x01\xff"))                 // a value that is not UTF-8
	f.Add([]byte("\x0b\x0c"))                                     // a group
	f.Add([]byte("\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01")) // a length that wraps
	f.Add([]byte("\x12\x0c\x12\x02\x1a\x00\x12\x06\x1a\x02\x08\x05\x1a\x00"))
	f.Fuzz(func(t *testing.T, b []byte) { checkDecode(t, b) })
}

// Slightly damaged messages are decoded like by the generated code, too.
func TestDamagedRequests(t *testing.T) {
	b, err := proto.Marshal(full())
	if err != nil {
		t.Fatal(err)
	}
	rapid.Check(t, func(rt *rapid.T) {
		damaged := bytes.Clone(b)
		for range rapid.IntRange(0, 3).Draw(rt, "times") {
			at := rapid.IntRange(0, len(damaged)-1).Draw(rt, "at")
			damaged[at] = rapid.Byte().Draw(rt, "byte")
		}
		from, to := 0, rapid.IntRange(0, len(damaged)).Draw(rt, "to")
		checkDecode(t, damaged[from:to])
		checkDecode(t, append(damaged, damaged[:to]...))
	})
}

func TestBounds(t *testing.T) {
	entry := func(k, v string) []*common.RateLimitDescriptor_Entry {
		return []*common.RateLimitDescriptor_Entry{{Key: k, Value: v}}
	}
	long := strings.Repeat("x", rls.DefaultMessage)
	many := func(descriptors, entries int) *pb.RateLimitRequest {
		m := &pb.RateLimitRequest{Domain: "d"}
		for range descriptors {
			d := &common.RateLimitDescriptor{}
			for range entries {
				d.Entries = append(d.Entries, entry("k", "v")...)
			}
			m.Descriptors = append(m.Descriptors, d)
		}
		return m
	}
	tests := []struct {
		name string
		m    *pb.RateLimitRequest
		want string
	}{
		{"all that there may be", many(1000, 4), ""},
		{"descriptors", many(1001, 1), "more than 1000 descriptors: send fewer, or raise rls.max_descriptors"},
		{"many entries", many(2, 5000), ""},
		{"a long value", request("d", "k", long[:len(long)-200]), ""},
		{"message", request("d", "k", long), "bytes, more than 1048576: send less, or raise listeners.grpc.max_message_size"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b, err := proto.Marshal(tt.m)
			if err != nil {
				t.Fatal(err)
			}
			json := []byte((&jsonRequest{tt.m}).String())
			var r rls.Request
			for how, err := range map[string]error{"protobuf": r.Decode(b, rls.Bounds{}), "JSON": r.DecodeJSON(json, rls.Bounds{})} {
				if got := fmt.Sprint(err); err == nil != (tt.want == "") || !strings.Contains(got, tt.want) && err != nil {
					t.Errorf("%s: got %q, want %q", how, got, tt.want)
				}
			}
		})
	}
}

// Requests above a bound are rejected before memory is allocated for them.
func TestBoundsAreCheap(t *testing.T) {
	m := &pb.RateLimitRequest{Domain: "d"}
	for range 100_000 {
		m.Descriptors = append(m.Descriptors, &common.RateLimitDescriptor{})
	}
	b, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	var r rls.Request
	if n := testing.AllocsPerRun(1000, func() { _ = r.Decode(b, rls.Bounds{}) }); n > 5 {
		t.Errorf("%v allocations to reject a request", n)
	}
}

func TestDecodeAllocatesNothing(t *testing.T) {
	b, err := proto.Marshal(full())
	if err != nil {
		t.Fatal(err)
	}
	var r rls.Request
	if n := testing.AllocsPerRun(100, func() {
		if err := r.Decode(b, rls.Bounds{}); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// The generated code decodes encoded responses without a difference.
func TestAppend(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		r := drawResponse(rt)
		b, err := r.Append(nil)
		if err != nil {
			t.Fatal(err)
		}
		var got pb.RateLimitResponse
		if err := proto.Unmarshal(b, &got); err != nil {
			t.Fatal(err)
		}
		if !proto.Equal(&got, r.Proto()) {
			t.Fatalf("got %v, want %v", &got, r.Proto())
		}
		if len(got.ProtoReflect().GetUnknown()) > 0 {
			t.Fatalf("unknown fields in %x", b)
		}
	})
}

func drawResponse(rt *rapid.T) *rls.Response {
	u32 := rapid.OneOf(rapid.Uint32(), rapid.Uint32Range(0, 300), rapid.Just(uint32(0)))
	code := rapid.Custom(func(t *rapid.T) rls.Code { return rls.Code(rapid.IntRange(0, 2).Draw(t, "code")) })
	one := rapid.Custom(func(t *rapid.T) rls.Status {
		return rls.Status{
			Code: code.Draw(t, "code"), Remaining: u32.Draw(t, "remaining"),
			HasLimit: rapid.Bool().Draw(t, "has limit"),
			Limit: rls.Limit{
				Requests: u32.Draw(t, "requests"), Unit: rls.Unit(rapid.IntRange(0, 7).Draw(t, "unit")),
				Multiplier: u32.Draw(t, "multiplier"), Name: rapid.String().Draw(t, "name"),
			},
			HasReset: rapid.Bool().Draw(t, "has reset"), Reset: int64(u32.Draw(t, "reset")),
		}
	})
	header := rapid.Custom(func(t *rapid.T) rls.Header {
		return rls.Header{Name: rapid.String().Draw(t, "name"), Value: rapid.String().Draw(t, "value")}
	})
	r := &rls.Response{
		Overall: code.Draw(rt, "overall"), Statuses: rapid.SliceOfN(one, 0, 4).Draw(rt, "statuses"),
		Headers: rapid.SliceOfN(header, 0, 3).Draw(rt, "headers"),
	}
	if rapid.Bool().Draw(rt, "metadata") {
		r.Metadata = &structpb.Struct{Fields: map[string]*structpb.Value{"k": structpb.NewStringValue(rapid.String().Draw(rt, "text"))}}
	}
	return r
}
