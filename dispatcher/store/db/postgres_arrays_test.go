package db

import (
	"math"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5/pgtype"
)

// TestArraysAreReadAsTheyWereEncoded reads the columns of batches by the codec of pgx.
func TestArraysAreReadAsTheyWereEncoded(t *testing.T) {
	t.Parallel()
	low, high := int64(math.MinInt64), int64(math.MaxInt64)
	t.Run("bigint", func(t *testing.T) {
		readsBack(t, pgtype.Int8ArrayOID, []int64{0, 1, -1, low, high}, slices.Equal)
	})
	t.Run("bigint or NULL", func(t *testing.T) {
		readsBack(t, pgtype.Int8ArrayOID, []*int64{nil, &low, nil, &high}, func(a, b []*int64) bool {
			return slices.EqualFunc(a, b, func(x, y *int64) bool { return x == y || x != nil && y != nil && *x == *y })
		})
	})
	t.Run("integer", func(t *testing.T) {
		readsBack(t, pgtype.Int4ArrayOID, []int32{0, 1, -1, math.MinInt32, math.MaxInt32}, slices.Equal)
	})
	t.Run("boolean", func(t *testing.T) {
		readsBack(t, pgtype.BoolArrayOID, []bool{true, false, true}, slices.Equal)
	})
	t.Run("text", func(t *testing.T) {
		readsBack(t, pgtype.TextArrayOID, []string{"", "a", `{"b",NULL}`, "Grüße"}, slices.Equal)
	})
}

func readsBack[T any](t *testing.T, oid uint32, column []T, equal func(a, b []T) bool) {
	t.Helper()
	ours, theirs := pgtype.NewMap(), pgtype.NewMap()
	encodeArrays(ours)
	for _, want := range [][]T{nil, {}, column} {
		if plan := ours.PlanEncode(oid, pgtype.BinaryFormatCode, want); plan == nil {
			t.Fatalf("no plan for %T", want)
		} else if _, ok := plan.(arrayPlan[T]); !ok {
			t.Errorf("%T is encoded by %T, want %T", want, plan, arrayPlan[T]{})
		}
		const before = "before"
		encoded, err := ours.Encode(oid, pgtype.BinaryFormatCode, want, []byte(before))
		if err != nil {
			t.Fatal(err)
		}
		if (encoded == nil) != (want == nil) {
			t.Errorf("%#v is encoded as %q; only nil is NULL", want, encoded)
		}
		if encoded != nil && string(encoded[:len(before)]) != before {
			t.Errorf("the buffer begins with %q, want %q", encoded[:len(before)], before)
		}
		var got []T
		if err := theirs.Scan(oid, pgtype.BinaryFormatCode, encoded[min(len(before), len(encoded)):], &got); want != nil && err != nil {
			t.Fatal(err)
		}
		if !equal(got, want) {
			t.Errorf("got %v, want %v", got, want)
		}
	}
}

// BenchmarkArrays encodes a batch of ids and of texts.
func BenchmarkArrays(b *testing.B) {
	types := pgtype.NewMap()
	encodeArrays(types)
	ids, texts := make([]int64, 500), make([]string, 500)
	for i := range ids {
		ids[i], texts[i] = math.MaxInt64-int64(i), "succeeded"
	}
	var buf []byte
	b.ReportAllocs()
	for b.Loop() {
		var err error
		if buf, err = types.Encode(pgtype.Int8ArrayOID, pgtype.BinaryFormatCode, ids, buf[:0]); err == nil {
			buf, err = types.Encode(pgtype.TextArrayOID, pgtype.BinaryFormatCode, texts, buf)
		}
		if err != nil {
			b.Fatal(err)
		}
	}
}
