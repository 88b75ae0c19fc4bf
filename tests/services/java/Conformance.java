import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedOutputStream;
import java.io.IOException;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Base64;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.Future;
import java.util.stream.Stream;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** Kafka's Java client behind the contract of tests/clients/conformance.py; settings are the client's defaults. */
public final class Conformance {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final Duration POLL = Duration.ofMillis(500);
    private static final long PATIENCE_MS = 60_000;

    public static void main(String[] arguments) throws Exception {
        String bootstrap = arguments[0];
        String topic = arguments[1];
        switch (arguments[2]) {
            case "create" -> create(bootstrap, topic, Integer.parseInt(arguments[3]));
            case "produce" -> produce(bootstrap, topic, Path.of(arguments[3]));
            case "consume" -> consume(bootstrap, topic, Integer.parseInt(arguments[3]));
            default -> throw new IllegalArgumentException("create, produce or consume, not " + arguments[2]);
        }
    }

    private static void create(String bootstrap, String topic, int partitions) throws Exception {
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", bootstrap))) {
            NewTopic wanted = new NewTopic(topic, Optional.of(partitions), Optional.empty());
            admin.createTopics(List.of(wanted)).all().get();
        }
    }

    private static void produce(String bootstrap, String topic, Path file) throws Exception {
        Map<String, KafkaProducer<byte[], byte[]>> producers = new HashMap<>();
        String last = null;
        List<Future<?>> sent = new ArrayList<>();
        try (Stream<String> lines = Files.lines(file)) {
            for (String line : (Iterable<String>) lines::iterator) {
                JsonNode record = JSON.readTree(line);
                String codec = record.get("compression").asText();
                if (last != null && !last.equals(codec)) {
                    producers.get(last).flush(); // the order between two producers is ours to keep
                }
                last = codec;
                sent.add(producers.computeIfAbsent(codec, name -> producer(bootstrap, name)).send(toSend(topic, record)));
            }
        }
        producers.values().forEach(KafkaProducer::close);
        for (Future<?> answer : sent) {
            answer.get();
        }
    }

    private static KafkaProducer<byte[], byte[]> producer(String bootstrap, String codec) {
        Map<String, Object> settings = Map.of("bootstrap.servers", bootstrap, "compression.type", codec);
        return new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer());
    }

    private static ProducerRecord<byte[], byte[]> toSend(String topic, JsonNode record) throws IOException {
        List<Header> headers = new ArrayList<>();
        for (JsonNode header : record.get("headers")) {
            headers.add(new RecordHeader(header.get(0).asText(), bytes(header.get(1))));
        }
        Long timestamp = record.get("timestamp").isNull() ? null : record.get("timestamp").asLong();
        byte[] key = bytes(record.get("key"));
        return new ProducerRecord<>(
                topic, record.get("partition").asInt(), timestamp, key, bytes(record.get("value")), headers);
    }

    private static void consume(String bootstrap, String topic, int count) throws IOException {
        Map<String, Object> settings = Map.of("bootstrap.servers", bootstrap);
        PrintStream out = new PrintStream(new BufferedOutputStream(System.out), false, StandardCharsets.UTF_8);
        var bytes = new ByteArrayDeserializer();
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(settings, bytes, bytes)) {
            List<TopicPartition> partitions =
                    consumer.partitionsFor(topic).stream().map(p -> new TopicPartition(topic, p.partition())).toList();
            consumer.assign(partitions);
            consumer.seekToBeginning(partitions);
            long patient = System.currentTimeMillis() + PATIENCE_MS;
            for (int seen = 0; seen < count; ) {
                if (System.currentTimeMillis() > patient) {
                    throw new IllegalStateException("read " + seen + " of " + count + " records");
                }
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(POLL)) {
                    out.println(JSON.writeValueAsString(toPrint(record)));
                    seen++;
                }
            }
        }
        out.flush();
    }

    private static ObjectNode toPrint(ConsumerRecord<byte[], byte[]> record) {
        ObjectNode line = JSON.createObjectNode();
        line.put("partition", record.partition()).put("offset", record.offset()).put("timestamp", record.timestamp());
        line.put("key", text(record.key())).put("value", text(record.value()));
        ArrayNode headers = line.putArray("headers");
        for (Header header : record.headers()) {
            headers.addArray().add(header.key()).add(text(header.value()));
        }
        return line;
    }

    private static byte[] bytes(JsonNode text) {
        return text.isNull() ? null : Base64.getDecoder().decode(text.asText());
    }

    private static String text(byte[] bytes) {
        return bytes == null ? null : Base64.getEncoder().encodeToString(bytes);
    }
}
