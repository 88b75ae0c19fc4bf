import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.Locale;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/** One member of a group, as tests/clients/group_member.py describes it: BOOTSTRAP TOPIC member GROUP PROTOCOL INSTANCE. */
public final class GroupMember {
    public static void main(String[] words) throws Exception {
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(settings(words))) {
            consumer.subscribe(List.of(words[1]), new Teller());
            boolean pending = false;
            while (!closed) {
                List<String> read = new ArrayList<>();
                consumer.poll(Duration.ofMillis(100)).forEach(one -> read.add("[" + one.partition() + "," + one.offset() + "]"));
                if (!read.isEmpty()) {
                    tell("read", read);
                }
                // A commit that a rebalance refuses is tried again.
                pending = (pending || !read.isEmpty()) && !commit(consumer);
            }
        }
        tell("left", List.of());
    }

    /** Whether standard input has ended; a thread waits for that. */
    private static volatile boolean closed = false;

    static {
        Thread watcher = new Thread(() -> {
            try {
                closed = System.in.read() < 0;
            } catch (java.io.IOException error) {
                closed = true;
            }
        });
        watcher.setDaemon(true);
        watcher.start();
    }

    private static Properties settings(String[] words) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", words[0]);
        settings.put("group.id", words[3]);
        settings.put("key.deserializer", ByteArrayDeserializer.class);
        settings.put("value.deserializer", ByteArrayDeserializer.class);
        settings.put("auto.offset.reset", "earliest");
        settings.put("enable.auto.commit", "false");
        settings.put("metadata.max.age.ms", "1000");
        if (words[4].equals("consumer")) {
            settings.put("group.protocol", "consumer");
        } else {
            settings.put("session.timeout.ms", "2000");
            settings.put("heartbeat.interval.ms", "200");
            String kind = words[4].equals("range") ? "RangeAssignor" : "CooperativeStickyAssignor";
            settings.put("partition.assignment.strategy", "org.apache.kafka.clients.consumer." + kind);
        }
        if (!words[5].isEmpty()) {
            settings.put("group.instance.id", words[5]);
        }
        return settings;
    }

    private static boolean commit(KafkaConsumer<byte[], byte[]> consumer) {
        try {
            List<String> done = new ArrayList<>();
            consumer.assignment().forEach(place -> done.add("[" + place.partition() + "," + consumer.position(place) + "]"));
            consumer.commitSync();
            tell("committed", done);
            return true;
        } catch (KafkaException error) {
            tell("not committed", List.of());
            return false;
        }
    }

    private static synchronized void tell(String event, Collection<?> values) {
        System.out.println(String.format(Locale.ROOT, "[%.6f, \"%s\", %s]", System.nanoTime() / 1e9, event, values));
    }

    private static final class Teller implements ConsumerRebalanceListener {
        @Override
        public void onPartitionsRevoked(Collection<TopicPartition> places) {
            tell("revoked", places.stream().map(TopicPartition::partition).toList());
        }

        @Override
        public void onPartitionsAssigned(Collection<TopicPartition> places) {
            tell("assigned", places.stream().map(TopicPartition::partition).toList());
        }
    }
}
