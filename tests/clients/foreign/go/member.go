package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"github.com/twmb/franz-go/pkg/kgo"
)

var telling sync.Mutex

// member is one member of a group, as tests/clients/group_member.py describes it.
func member(bootstrap, topic, group, protocol, instance string) error {
	ctx, leave := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		leave()
	}()
	client, err := kgo.NewClient(memberOptions(bootstrap, topic, group, protocol, instance)...)
	if err != nil {
		return err
	}
	for ctx.Err() == nil {
		poll, done := context.WithTimeout(ctx, 100*time.Millisecond)
		fetches := client.PollFetches(poll)
		done()
		readAndCommit(client, fetches)
	}
	if instance == "" || protocol == "consumer" {
		client.LeaveGroup()
	}
	client.Close()
	tell("left", nil)
	return nil
}

func memberOptions(bootstrap, topic, group, protocol, instance string) []kgo.Opt {
	named := func(event string) func(context.Context, *kgo.Client, map[string][]int32) {
		return func(_ context.Context, _ *kgo.Client, places map[string][]int32) { tell(event, append([]int32{}, places[topic]...)) }
	}
	options := []kgo.Opt{
		kgo.SeedBrokers(bootstrap),
		kgo.ConsumeTopics(topic),
		kgo.ConsumerGroup(group),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.DisableAutoCommit(),
		kgo.SessionTimeout(3 * time.Second),
		kgo.HeartbeatInterval(200 * time.Millisecond),
		kgo.FetchMaxWait(50 * time.Millisecond),
		kgo.MetadataMinAge(100 * time.Millisecond),
		kgo.MetadataMaxAge(time.Second),
		kgo.OnPartitionsAssigned(named("assigned")),
		kgo.OnPartitionsRevoked(named("revoked")),
		kgo.OnPartitionsLost(named("revoked")),
	}
	switch protocol {
	case "consumer":
		options = append(options, kgo.ServerSideBalancer(), kgo.Balancers(kgo.StickyBalancer()))
	case "range":
		options = append(options, kgo.Balancers(kgo.RangeBalancer()))
	default:
		options = append(options, kgo.Balancers(kgo.CooperativeStickyBalancer()))
	}
	if instance != "" {
		options = append(options, kgo.InstanceID(instance))
	}
	return options
}

func readAndCommit(client *kgo.Client, fetches kgo.Fetches) {
	read, ends := [][2]int64{}, map[int32]int64{}
	for _, one := range fetches.Records() {
		read = append(read, [2]int64{int64(one.Partition), one.Offset})
		ends[one.Partition] = one.Offset + 1
	}
	if len(read) == 0 {
		return
	}
	tell("read", read)
	if err := client.CommitRecords(context.Background(), fetches.Records()...); err != nil {
		tell("not committed", err.Error())
		return
	}
	committed := [][2]int64{}
	for partition, offset := range ends {
		committed = append(committed, [2]int64{int64(partition), offset})
	}
	tell("committed", committed)
}

// tell prints one event with the time of the machine's monotonic clock, which Go keeps to itself.
func tell(event string, value any) {
	telling.Lock()
	defer telling.Unlock()
	var now syscall.Timespec
	_, _, _ = syscall.Syscall(syscall.SYS_CLOCK_GETTIME, 1, uintptr(unsafe.Pointer(&now)), 0)
	line, _ := json.Marshal([]any{float64(now.Sec) + float64(now.Nsec)/1e9, event, value})
	fmt.Println(string(line))
}
