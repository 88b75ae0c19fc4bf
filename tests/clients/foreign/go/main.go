// franz-go behind the contract of tests/clients/conformance.py; settings are the client's defaults.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

const patience = 60 * time.Second

var codecs = map[string]kgo.CompressionCodec{
	"none":   kgo.NoCompression(),
	"gzip":   kgo.GzipCompression(),
	"snappy": kgo.SnappyCompression(),
	"lz4":    kgo.Lz4Compression(),
	"zstd":   kgo.ZstdCompression(),
}

// header is a name and a value; a nil value is JSON's null.
type header struct {
	name  string
	value []byte
}

// record is one line: byte slices are base64 in JSON, nil is null.
type record struct {
	Compression string   `json:"compression,omitempty"`
	Partition   int32    `json:"partition"`
	Offset      int64    `json:"offset"`
	Timestamp   *int64   `json:"timestamp"`
	Key         []byte   `json:"key"`
	Value       []byte   `json:"value"`
	Headers     []header `json:"headers"`
}

func main() {
	if os.Args[3] == "member" {
		if err := member(os.Args[1], os.Args[2], os.Args[4], os.Args[5], os.Args[6]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := run(ctx, os.Args[1], os.Args[2], os.Args[3], os.Args[4]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, bootstrap, topic, command, argument string) error {
	seed := kgo.SeedBrokers(bootstrap)
	switch command {
	case "create":
		return withNumber(argument, func(partitions int) error { return create(ctx, seed, topic, partitions) })
	case "produce":
		return produce(ctx, seed, topic, argument)
	case "consume":
		return withNumber(argument, func(count int) error { return consume(ctx, seed, topic, count) })
	}
	return fmt.Errorf("create, produce or consume, not %s", command)
}

func create(ctx context.Context, seed kgo.Opt, topic string, partitions int) error {
	client, err := kgo.NewClient(seed)
	if err != nil {
		return err
	}
	defer client.Close()
	_, err = kadm.NewClient(client).CreateTopic(ctx, int32(partitions), -1, nil, topic)
	return err
}

func produce(ctx context.Context, seed kgo.Opt, topic, path string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	lines, batch := json.NewDecoder(bufio.NewReader(file)), []record{}
	for lines.More() {
		var next record
		if err := lines.Decode(&next); err != nil {
			return err
		}
		if len(batch) > 0 && batch[0].Compression != next.Compression {
			if err := send(ctx, seed, topic, batch); err != nil {
				return err
			}
			batch = batch[:0]
		}
		batch = append(batch, next)
	}
	return send(ctx, seed, topic, batch)
}

// send writes records of one codec and returns when all are acknowledged.
func send(ctx context.Context, seed kgo.Opt, topic string, batch []record) error {
	codec := kgo.ProducerBatchCompression(codecs[batch[0].Compression])
	client, err := kgo.NewClient(seed, codec, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		return err
	}
	defer client.Close()
	records := make([]*kgo.Record, 0, len(batch))
	for _, line := range batch {
		one := &kgo.Record{Topic: topic, Partition: line.Partition, Key: line.Key, Value: line.Value}
		if line.Timestamp != nil {
			one.Timestamp = time.UnixMilli(*line.Timestamp)
		}
		for _, each := range line.Headers {
			one.Headers = append(one.Headers, kgo.RecordHeader{Key: each.name, Value: each.value})
		}
		records = append(records, one)
	}
	return client.ProduceSync(ctx, records...).FirstErr()
}

func consume(ctx context.Context, seed kgo.Opt, topic string, count int) error {
	client, err := kgo.NewClient(seed, kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		return err
	}
	defer client.Close()
	out := bufio.NewWriter(os.Stdout)
	defer out.Flush()
	lines := json.NewEncoder(out)
	for seen := 0; seen < count; {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return fmt.Errorf("read %d of %d records: %w", seen, count, err)
		}
		for _, one := range fetches.Records() {
			if err := lines.Encode(toPrint(one)); err != nil {
				return err
			}
			seen++
		}
	}
	return nil
}

func toPrint(one *kgo.Record) record {
	when := one.Timestamp.UnixMilli()
	headers := []header{}
	for _, each := range one.Headers {
		headers = append(headers, header{each.Key, each.Value})
	}
	return record{
		Partition: one.Partition, Offset: one.Offset, Timestamp: &when,
		Key: one.Key, Value: one.Value, Headers: headers,
	}
}

// MarshalJSON writes [name, base64 or null].
func (h header) MarshalJSON() ([]byte, error) {
	return json.Marshal([]any{h.name, h.value})
}

// UnmarshalJSON reads [name, base64 or null].
func (h *header) UnmarshalJSON(text []byte) error {
	return json.Unmarshal(text, &[]any{&h.name, &h.value})
}

func withNumber(text string, use func(int) error) error {
	number, err := strconv.Atoi(text)
	if err != nil {
		return err
	}
	return use(number)
}
