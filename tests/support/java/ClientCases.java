import com.fasterxml.jackson.databind.ObjectMapper;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.Config;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.CreateTopicsResult;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndTimestamp;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.InvalidRecordException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.RecordTooLargeException;
import org.apache.kafka.common.errors.TimeoutException;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** Many cases of the Java client in one JVM: one JSON line for each, with what went wrong if anything. */
public class ClientCases {
    interface Case {
        void run() throws Exception;
    }

    static final long FIRST_MS = System.currentTimeMillis() - 3_600_000;
    static String bootstrap;
    static Admin admin;

    public static void main(String[] arguments) throws Exception {
        bootstrap = arguments[0];
        Set<String> wanted = Set.of(Arrays.copyOfRange(arguments, 1, arguments.length));
        admin = Admin.create(Map.of("bootstrap.servers", bootstrap));
        Map<String, Case> cases = new LinkedHashMap<>();
        for (String codec : List.of("none", "gzip", "snappy", "lz4", "zstd")) {
            cases.put("records come back " + codec, () -> recordsComeBack(codec));
        }
        cases.put("idempotent order", ClientCases::idempotentOrder);
        cases.put("large message", ClientCases::largeMessage);
        cases.put("too large is refused", ClientCases::tooLargeIsRefused);
        cases.put("large batches are split", ClientCases::largeBatchesAreSplit);
        cases.put("record without key on a compacted topic", ClientCases::recordWithoutKey);
        cases.put("seek by time", ClientCases::seekByTime);
        cases.put("delete records", ClientCases::deleteRecords);
        cases.put("configs", ClientCases::configs);
        cases.put("topic made again", ClientCases::topicMadeAgain);
        cases.put("created topic tells its configs", ClientCases::createdTopicTellsItsConfigs);
        cases.put("described topic", ClientCases::describedTopic);
        cases.put("new partitions", ClientCases::newPartitions);
        cases.put("cluster and log directories", ClientCases::clusterAndLogDirs);
        cases.put("list offsets", ClientCases::listOffsets);
        cases.put("producers are described", ClientCases::describeProducers);
        cases.put("many partitions in one session", ClientCases::manyPartitions);
        cases.put("transactions fail at once", ClientCases::transactionsFailAtOnce);
        ObjectMapper json = new ObjectMapper();
        for (Map.Entry<String, Case> each : cases.entrySet()) {
            if (!wanted.isEmpty() && !wanted.contains(each.getKey())) {
                continue;
            }
            Map<String, Object> answer = new LinkedHashMap<>();
            answer.put("case", each.getKey());
            try {
                each.getValue().run();
                answer.put("failure", null);
            } catch (Throwable thrown) {
                answer.put("failure", thrown + " at " + Arrays.stream(thrown.getStackTrace()).limit(6).toList());
            }
            System.out.println(json.writeValueAsString(answer));
        }
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }

    static void expect(boolean condition, Object told) {
        if (!condition) {
            throw new AssertionError(String.valueOf(told));
        }
    }

    static String topic(int partitions, Map<String, String> configs) throws Exception {
        String name = "java-" + Uuid.randomUuid().toString().replace("_", "a");
        admin.createTopics(List.of(new NewTopic(name, partitions, (short) 1).configs(configs))).all().get();
        awaitLeaders(name, partitions);
        return name;
    }

    static void awaitLeaders(String name, int partitions) throws Exception {
        for (int attempt = 0; attempt < 500; attempt++) {
            try {
                TopicDescription found = admin.describeTopics(List.of(name)).allTopicNames().get().get(name);
                if (found.partitions().size() == partitions) {
                    return;
                }
            } catch (ExecutionException notYet) {
                Thread.onSpinWait();
            }
            Thread.sleep(10);
        }
        throw new AssertionError(name + " did not appear");
    }

    static KafkaProducer<byte[], byte[]> producer(Map<String, Object> more) {
        Map<String, Object> settings = new LinkedHashMap<>(more);
        settings.put("bootstrap.servers", bootstrap);
        settings.putIfAbsent("max.block.ms", 20_000);
        settings.putIfAbsent("delivery.timeout.ms", 40_000);
        return new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer());
    }

    static KafkaConsumer<byte[], byte[]> consumer(Map<String, Object> more, Collection<TopicPartition> assigned) {
        Map<String, Object> settings = new LinkedHashMap<>(more);
        settings.put("bootstrap.servers", bootstrap);
        settings.putIfAbsent("auto.offset.reset", "earliest");
        KafkaConsumer<byte[], byte[]> made =
                new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer());
        made.assign(assigned);
        return made;
    }

    static List<ConsumerRecord<byte[], byte[]>> read(KafkaConsumer<byte[], byte[]> consumer, int count) {
        List<ConsumerRecord<byte[], byte[]>> found = new ArrayList<>();
        long deadline = System.currentTimeMillis() + 30_000;
        while (found.size() < count) {
            consumer.poll(Duration.ofMillis(500)).forEach(found::add);
            expect(System.currentTimeMillis() < deadline, found.size() + " of " + count + " records came");
        }
        return found;
    }

    static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    static void send(String topic, int count, Map<String, Object> settings) throws Exception {
        try (KafkaProducer<byte[], byte[]> producer = producer(settings)) {
            List<Future<RecordMetadata>> sent = new ArrayList<>();
            for (int number = 0; number < count; number++) {
                byte[] key = number % 5 == 0 ? null : bytes("key-" + number);
                byte[] value = number % 7 == 3 ? null : bytes("value-" + number);
                ProducerRecord<byte[], byte[]> record =
                        new ProducerRecord<>(topic, 0, FIRST_MS + number * 1000L, key, value);
                record.headers().add("number", bytes("" + number)).add("null", null);
                sent.add(producer.send(record));
            }
            for (int number = 0; number < count; number++) {
                expect(sent.get(number).get().offset() == number, "offset " + sent.get(number).get());
            }
        }
    }

    static void recordsComeBack(String codec) throws Exception {
        String topic = topic(1, Map.of());
        send(topic, 50, Map.of("compression.type", codec, "linger.ms", 20));
        try (var consumer = consumer(Map.of("check.crcs", true), List.of(new TopicPartition(topic, 0)))) {
            List<ConsumerRecord<byte[], byte[]>> found = read(consumer, 50);
            for (int number = 0; number < 50; number++) {
                ConsumerRecord<byte[], byte[]> record = found.get(number);
                byte[] key = number % 5 == 0 ? null : bytes("key-" + number);
                byte[] value = number % 7 == 3 ? null : bytes("value-" + number);
                expect(Arrays.equals(record.key(), key) && Arrays.equals(record.value(), value), record);
                expect(record.timestamp() == FIRST_MS + number * 1000L, record);
                Header header = record.headers().lastHeader("number");
                expect(Arrays.equals(header.value(), bytes("" + number)), record);
                expect(record.headers().lastHeader("null").value() == null, record);
            }
        }
    }

    static void idempotentOrder() throws Exception {
        String topic = topic(1, Map.of());
        send(topic, 2000, Map.of("enable.idempotence", true, "batch.size", 200, "linger.ms", 0));
        try (var consumer = consumer(Map.of(), List.of(new TopicPartition(topic, 0)))) {
            List<ConsumerRecord<byte[], byte[]>> found = read(consumer, 2000);
            for (int number = 0; number < 2000; number++) {
                expect(found.get(number).timestamp() == FIRST_MS + number * 1000L, found.get(number));
            }
        }
    }

    static void largeMessage() throws Exception {
        String topic = topic(1, Map.of("max.message.bytes", "8000000"));
        byte[] value = new byte[5_000_000];
        Arrays.fill(value, (byte) 7);
        try (var producer = producer(Map.of("max.request.size", 9_000_000))) {
            producer.send(new ProducerRecord<>(topic, value)).get();
        }
        Map<String, Object> small = Map.of("max.partition.fetch.bytes", 1000, "fetch.max.bytes", 1000);
        try (var consumer = consumer(small, List.of(new TopicPartition(topic, 0)))) {
            expect(Arrays.equals(read(consumer, 1).get(0).value(), value), "another value");
        }
    }

    static void tooLargeIsRefused() throws Exception {
        String topic = topic(1, Map.of("max.message.bytes", "1000"));
        try (var producer = producer(Map.of())) {
            Throwable refused = failure(producer.send(new ProducerRecord<>(topic, new byte[2000])));
            expect(refused instanceof RecordTooLargeException, refused);
            producer.send(new ProducerRecord<>(topic, new byte[10])).get();
        }
    }

    static void largeBatchesAreSplit() throws Exception {
        String topic = topic(1, Map.of("max.message.bytes", "2000"));
        try (var producer = producer(Map.of("batch.size", 100_000, "linger.ms", 200))) {
            List<Future<RecordMetadata>> sent = new ArrayList<>();
            for (int number = 0; number < 60; number++) {
                sent.add(producer.send(new ProducerRecord<>(topic, new byte[300])));
            }
            for (Future<RecordMetadata> each : sent) {
                each.get();
            }
        }
        try (var consumer = consumer(Map.of(), List.of(new TopicPartition(topic, 0)))) {
            expect(read(consumer, 60).size() == 60, "not all came");
        }
    }

    static void recordWithoutKey() throws Exception {
        String topic = topic(1, Map.of("cleanup.policy", "compact"));
        try (var producer = producer(Map.of("linger.ms", 200))) {
            Future<RecordMetadata> good = producer.send(new ProducerRecord<>(topic, bytes("k"), bytes("v")));
            Future<RecordMetadata> bad = producer.send(new ProducerRecord<>(topic, bytes("v")));
            expect(failure(bad) instanceof InvalidRecordException, failure(bad));
            failure(good);
        }
    }

    static void seekByTime() throws Exception {
        String topic = topic(1, Map.of());
        send(topic, 10, Map.of());
        TopicPartition partition = new TopicPartition(topic, 0);
        try (var consumer = consumer(Map.of(), List.of(partition))) {
            OffsetAndTimestamp found = consumer.offsetsForTimes(Map.of(partition, FIRST_MS + 3500)).get(partition);
            expect(found.offset() == 4 && found.timestamp() == FIRST_MS + 4000, found);
            consumer.seek(partition, found.offset());
            expect(read(consumer, 6).get(0).offset() == 4, "another offset");
            expect(consumer.offsetsForTimes(Map.of(partition, FIRST_MS * 2)).get(partition) == null, "found");
        }
    }

    static void deleteRecords() throws Exception {
        String topic = topic(1, Map.of());
        send(topic, 10, Map.of());
        TopicPartition partition = new TopicPartition(topic, 0);
        long low = admin.deleteRecords(Map.of(partition, RecordsToDelete.beforeOffset(6)))
                .lowWatermarks().get(partition).get().lowWatermark();
        expect(low == 6, low);
        try (var consumer = consumer(Map.of(), List.of(partition))) {
            expect(read(consumer, 4).get(0).offset() == 6, "another offset");
            expect(consumer.beginningOffsets(List.of(partition)).get(partition) == 6, "another start");
        }
    }

    static void configs() throws Exception {
        String topic = topic(1, Map.of("retention.ms", "7000"));
        ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
        Config before = admin.describeConfigs(List.of(resource)).all().get().get(resource);
        expect(before.get("retention.ms").value().equals("7000"), before.get("retention.ms"));
        expect(before.get("retention.ms").source() == ConfigEntry.ConfigSource.DYNAMIC_TOPIC_CONFIG, before);
        AlterConfigOp change =
                new AlterConfigOp(new ConfigEntry("retention.ms", "8000"), AlterConfigOp.OpType.SET);
        admin.incrementalAlterConfigs(Map.of(resource, List.of(change))).all().get();
        for (int attempt = 0; attempt < 500; attempt++) {
            Config after = admin.describeConfigs(List.of(resource)).all().get().get(resource);
            if (after.get("retention.ms").value().equals("8000")) {
                return;
            }
            Thread.sleep(10);
        }
        throw new AssertionError("the change does not show");
    }

    static void topicMadeAgain() throws Exception {
        String topic = topic(1, Map.of());
        Uuid first = admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic).topicId();
        try (var producer = producer(Map.of("metadata.max.age.ms", 500));
                var consumer = consumer(Map.of("metadata.max.age.ms", 500),
                        List.of(new TopicPartition(topic, 0)))) {
            producer.send(new ProducerRecord<>(topic, bytes("old"))).get();
            read(consumer, 1);
            admin.deleteTopics(List.of(topic)).all().get();
            while (admin.listTopics().names().get().contains(topic)) {
                Thread.sleep(10);
            }
            admin.createTopics(List.of(new NewTopic(topic, 1, (short) 1))).all().get();
            awaitLeaders(topic, 1);
            Uuid second = admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic).topicId();
            expect(!first.equals(second), "the same id");
            expect(producer.send(new ProducerRecord<>(topic, bytes("new"))).get().offset() == 0, "offset");
        }
        try (var consumer = consumer(Map.of(), List.of(new TopicPartition(topic, 0)))) {
            expect(Arrays.equals(read(consumer, 1).get(0).value(), bytes("new")), "an old record");
        }
    }

    static void createdTopicTellsItsConfigs() throws Exception {
        String name = "java-told-" + Uuid.randomUuid().toString().replace("_", "a");
        CreateTopicsResult made = admin.createTopics(
                List.of(new NewTopic(name, 3, (short) 1).configs(Map.of("segment.ms", "60000"))));
        expect(made.config(name).get().get("segment.ms").value().equals("60000"), made.config(name).get());
        expect(made.numPartitions(name).get() == 3 && made.replicationFactor(name).get() == 1, made);
        expect(!made.topicId(name).get().equals(Uuid.ZERO_UUID), "no id");
    }

    static void describedTopic() throws Exception {
        String topic = topic(4, Map.of());
        TopicDescription found = admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic);
        expect(found.partitions().size() == 4, found);
        expect(found.partitions().get(0).elr().isEmpty() && found.partitions().get(0).lastKnownElr().isEmpty(),
                found);
        expect(admin.describeTopics(org.apache.kafka.common.TopicCollection.ofTopicIds(List.of(found.topicId())))
                .allTopicIds().get().get(found.topicId()).name().equals(topic), "by id");
    }

    static void newPartitions() throws Exception {
        String topic = topic(1, Map.of());
        admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(3))).all().get();
        awaitLeaders(topic, 3);
        try (var producer = producer(Map.of())) {
            producer.send(new ProducerRecord<>(topic, 2, null, bytes("there"))).get();
        }
        try (var consumer = consumer(Map.of(), List.of(new TopicPartition(topic, 2)))) {
            expect(Arrays.equals(read(consumer, 1).get(0).value(), bytes("there")), "another value");
        }
    }

    static void clusterAndLogDirs() throws Exception {
        var cluster = admin.describeCluster();
        expect(cluster.nodes().get().size() == 1 && cluster.controller().get() != null, cluster.nodes().get());
        expect(!cluster.clusterId().get().isEmpty(), "no cluster id");
        int node = cluster.nodes().get().iterator().next().id();
        String topic = topic(1, Map.of());
        send(topic, 10, Map.of());
        var directories = admin.describeLogDirs(List.of(node)).allDescriptions().get().get(node);
        expect(directories.size() == 1, directories);
        var directory = directories.values().iterator().next();
        expect(directory.replicaInfos().get(new TopicPartition(topic, 0)).size() > 0, directory);
        expect(directory.totalBytes().isPresent() && directory.usableBytes().isPresent(), directory);
    }

    static void listOffsets() throws Exception {
        String topic = topic(1, Map.of());
        send(topic, 10, Map.of());
        TopicPartition partition = new TopicPartition(topic, 0);
        Map<OffsetSpec, Long> expected = new LinkedHashMap<>();
        expected.put(OffsetSpec.earliest(), 0L);
        expected.put(OffsetSpec.latest(), 10L);
        expected.put(OffsetSpec.maxTimestamp(), 9L);
        expected.put(OffsetSpec.earliestLocal(), 0L);
        expected.put(OffsetSpec.latestTiered(), -1L);
        expected.put(OffsetSpec.forTimestamp(FIRST_MS + 1), 1L);
        for (Map.Entry<OffsetSpec, Long> each : expected.entrySet()) {
            var found = admin.listOffsets(Map.of(partition, each.getKey())).partitionResult(partition).get();
            expect(found.offset() == each.getValue(), each.getKey() + " " + found);
        }
    }

    static void describeProducers() throws Exception {
        String topic = topic(1, Map.of());
        send(topic, 10, Map.of("enable.idempotence", true));
        TopicPartition partition = new TopicPartition(topic, 0);
        var found = admin.describeProducers(List.of(partition)).partitionResult(partition).get().activeProducers();
        expect(found.size() == 1 && found.get(0).lastSequence() == 9, found);
    }

    static void manyPartitions() throws Exception {
        String topic = topic(20, Map.of());
        List<TopicPartition> all = new ArrayList<>();
        for (int number = 0; number < 20; number++) {
            all.add(new TopicPartition(topic, number));
        }
        Map<String, Object> little = Map.of("fetch.max.bytes", 500, "max.partition.fetch.bytes", 300);
        try (var producer = producer(Map.of()); var consumer = consumer(little, all)) {
            for (int round = 0; round < 3; round++) {
                for (int number = 0; number < 20; number++) {
                    producer.send(new ProducerRecord<>(topic, number, null, new byte[200])).get();
                }
                Map<Integer, Integer> seen = new LinkedHashMap<>();
                read(consumer, 20).forEach(record -> seen.merge(record.partition(), 1, Integer::sum));
                expect(seen.size() == 20 && Collections.max(seen.values()) == 1, seen);
            }
        }
    }

    static void transactionsFailAtOnce() throws Exception {
        long start = System.nanoTime();
        try (var producer = producer(Map.of("transactional.id", "none", "max.block.ms", 15_000))) {
            producer.initTransactions();
            throw new AssertionError("transactions were accepted");
        } catch (TimeoutException hung) {
            throw new AssertionError("it hung until the client gave up", hung);
        } catch (org.apache.kafka.common.KafkaException refused) {
            expect(TimeUnit.NANOSECONDS.toSeconds(System.nanoTime() - start) < 10, refused);
        }
    }

    static Throwable failure(Future<RecordMetadata> sent) throws Exception {
        try {
            sent.get();
            return null;
        } catch (ExecutionException wrapped) {
            return wrapped.getCause();
        }
    }
}
