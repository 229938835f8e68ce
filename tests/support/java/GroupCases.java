import com.fasterxml.jackson.databind.ObjectMapper;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.ExecutionException;
import java.util.function.BooleanSupplier;
import java.util.regex.Pattern;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.ConsumerGroupDescription;
import org.apache.kafka.clients.admin.ListGroupsOptions;
import org.apache.kafka.clients.admin.MemberToRemove;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.RemoveMembersFromConsumerGroupOptions;
import org.apache.kafka.clients.consumer.CommitFailedException;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.NoOffsetForPartitionException;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.consumer.SubscriptionPattern;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.GroupState;
import org.apache.kafka.common.GroupType;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.errors.FencedInstanceIdException;
import org.apache.kafka.common.errors.GroupIdNotFoundException;
import org.apache.kafka.common.errors.GroupNotEmptyException;
import org.apache.kafka.common.errors.GroupSubscribedToTopicException;
import org.apache.kafka.common.errors.InvalidRegularExpression;
import org.apache.kafka.common.errors.UnknownMemberIdException;
import org.apache.kafka.common.errors.UnreleasedInstanceIdException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** Many group cases of the Java client in one JVM: one JSON line for each, with what went wrong if anything. */
public class GroupCases {
    interface Case {
        void run(String style) throws Exception;
    }

    static final String ASSIGNORS = "org.apache.kafka.clients.consumer.";
    static final List<String> STYLES = List.of("range", "cooperative", "consumer");
    static String bootstrap;
    static Admin admin;
    static final List<Member> open = new ArrayList<>();

    public static void main(String[] arguments) throws Exception {
        bootstrap = arguments[0];
        Set<String> wanted = Set.of(Arrays.copyOfRange(arguments, 1, arguments.length));
        admin = Admin.create(Map.of("bootstrap.servers", bootstrap));
        Map<String, Case> cases = new LinkedHashMap<>();
        cases.put("join, share and leave", GroupCases::share);
        cases.put("static restart", GroupCases::staticRestart);
        cases.put("static double", GroupCases::staticDouble);
        cases.put("pause and seek", GroupCases::pauseAndSeek);
        cases.put("commit sync and async", GroupCases::commits);
        cases.put("commit of a removed member", GroupCases::commitOfARemovedMember);
        cases.put("reset rules", GroupCases::resetRules);
        cases.put("pattern", GroupCases::pattern);
        cases.put("max poll interval", GroupCases::maxPollInterval);
        cases.put("admin", GroupCases::adminCalls);
        ObjectMapper json = new ObjectMapper();
        for (String style : STYLES) {
            for (Map.Entry<String, Case> each : cases.entrySet()) {
                report(json, wanted, each.getKey() + " / " + style, () -> each.getValue().run(style));
            }
        }
        report(json, wanted, "live migration", GroupCases::migration);
        report(json, wanted, "simple group", GroupCases::simpleGroup);
        report(json, wanted, "assignors change by rolling", GroupCases::rollingAssignors);
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }

    interface Step {
        void run() throws Exception;
    }

    static void report(ObjectMapper json, Set<String> wanted, String name, Step step) throws Exception {
        if (!wanted.isEmpty() && !wanted.contains(name)) {
            return;
        }
        Map<String, Object> answer = new LinkedHashMap<>();
        answer.put("case", name);
        long start = System.nanoTime();
        try {
            step.run();
            answer.put("failure", null);
        } catch (Throwable thrown) {
            answer.put("failure", thrown + " at " + Arrays.stream(thrown.getStackTrace()).limit(6).toList());
        }
        for (Member each : List.copyOf(open)) {
            try {
                each.close();
            } catch (RuntimeException gone) {
                open.remove(each);
            }
        }
        answer.put("ms", (System.nanoTime() - start) / 1_000_000);
        System.out.println(json.writeValueAsString(answer));
    }

    static void expect(boolean condition, Object told) {
        if (!condition) {
            throw new AssertionError(String.valueOf(told));
        }
    }

    static String unique(String prefix) {
        return prefix + "-" + Uuid.randomUuid().toString().replace("_", "a").replace("-", "b");
    }

    static String topic(String name, int partitions, int records) throws Exception {
        admin.createTopics(List.of(new NewTopic(name, partitions, (short) 1))).all().get();
        Map<String, Object> settings = Map.of("bootstrap.servers", bootstrap, "linger.ms", 5);
        try (var producer = new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer())) {
            for (int number = 0; number < records; number++) {
                for (int partition = 0; partition < partitions; partition++) {
                    byte[] value = (partition + "/" + number).getBytes(StandardCharsets.UTF_8);
                    producer.send(new ProducerRecord<>(name, partition, null, value));
                }
            }
            producer.flush();
        }
        return name;
    }

    static String topic(int partitions, int records) throws Exception {
        return topic(unique("groups"), partitions, records);
    }

    /** A consumer with what its listener was told and what it has read. */
    static final class Member implements ConsumerRebalanceListener {
        final KafkaConsumer<byte[], byte[]> consumer;
        final Set<TopicPartition> owned = new HashSet<>();
        final Set<TopicPartition> revoked = new HashSet<>();
        final Set<TopicPartition> lost = new HashSet<>();
        final List<String> read = new ArrayList<>();

        Member(String style, String group, Map<String, Object> more) {
            Map<String, Object> settings = new LinkedHashMap<>();
            settings.put("bootstrap.servers", bootstrap);
            settings.put("group.id", group);
            settings.put("auto.offset.reset", "earliest");
            settings.put("fetch.max.wait.ms", 20);
            settings.put("retry.backoff.ms", 20);
            if (style.equals("consumer")) {
                settings.put("group.protocol", "consumer");
            } else {
                settings.put("group.protocol", "classic");
                settings.put("heartbeat.interval.ms", 100);
                settings.put("session.timeout.ms", 6000);
                settings.put("partition.assignment.strategy", style.equals("range")
                        ? ASSIGNORS + "RangeAssignor" : ASSIGNORS + "CooperativeStickyAssignor");
            }
            settings.putAll(more);
            consumer = new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer());
            open.add(this);
        }

        Member on(String... topics) {
            consumer.subscribe(List.of(topics), this);
            return this;
        }

        @Override
        public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
            owned.addAll(partitions);
        }

        @Override
        public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
            owned.removeAll(partitions);
            revoked.addAll(partitions);
        }

        @Override
        public void onPartitionsLost(Collection<TopicPartition> partitions) {
            owned.removeAll(partitions);
            lost.addAll(partitions);
        }

        void poll() {
            for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(20))) {
                read.add(record.partition() + "/" + record.offset());
            }
        }

        void close() {
            open.remove(this);
            consumer.close();
        }
    }

    static void until(BooleanSupplier condition, String what, Member... members) {
        long deadline = System.currentTimeMillis() + 20_000;
        while (!condition.getAsBoolean()) {
            for (Member each : members) {
                each.poll();
            }
            expect(System.currentTimeMillis() < deadline,
                    "waited in vain for " + what + ": " + Arrays.stream(members).map(m -> m.owned).toList());
        }
    }

    static void untilShared(int partitions, Member... members) {
        until(() -> {
            Set<TopicPartition> all = new HashSet<>();
            int count = 0;
            for (Member each : members) {
                all.addAll(each.owned);
                count += each.owned.size();
                if (each.owned.size() < partitions / members.length) {
                    return false;
                }
            }
            return count == partitions && all.size() == partitions;
        }, partitions + " partitions to be shared", members);
    }

    static Throwable failure(Step step) throws Exception {
        try {
            step.run();
            return null;
        } catch (ExecutionException wrapped) {
            return wrapped.getCause();
        } catch (RuntimeException thrown) {
            return thrown;
        }
    }

    static void share(String style) throws Exception {
        String topic = topic(4, 10);
        String group = unique("share");
        Member first = new Member(style, group, Map.of()).on(topic);
        until(() -> first.read.size() == 40, "all records", first);
        Member second = new Member(style, group, Map.of()).on(topic);
        untilShared(4, first, second);
        int taken = style.equals("range") ? 4 : 2;
        expect(first.revoked.size() == taken, "revoked " + first.revoked);
        expect(second.read.isEmpty(), "read again: " + second.read);
        second.close();
        untilShared(4, first);
        expect(first.read.size() == 40 && first.lost.isEmpty(), first.read + " " + first.lost);
    }

    static void staticRestart(String style) throws Exception {
        String topic = topic(4, 1);
        String group = unique("static");
        Member first = new Member(style, group, Map.of("group.instance.id", "one")).on(topic);
        Member second = new Member(style, group, Map.of("group.instance.id", "two")).on(topic);
        untilShared(4, first, second);
        Set<TopicPartition> kept = Set.copyOf(second.owned);
        first.revoked.clear();
        second.close();
        Member again = new Member(style, group, Map.of("group.instance.id", "two")).on(topic);
        until(() -> again.owned.equals(kept), "the old partitions", first, again);
        expect(first.revoked.isEmpty(), "the other one was disturbed: " + first.revoked);
    }

    static void staticDouble(String style) throws Exception {
        String topic = topic(1, 1);
        String group = unique("double");
        Member first = new Member(style, group, Map.of("group.instance.id", "one")).on(topic);
        untilShared(1, first);
        Member second = new Member(style, group, Map.of("group.instance.id", "one")).on(topic);
        boolean consumer = style.equals("consumer");
        Throwable refused = failure(() -> until(() -> false, "a refusal", first, second));
        expect(consumer ? refused instanceof UnreleasedInstanceIdException
                : refused instanceof FencedInstanceIdException, refused);
    }

    static void pauseAndSeek(String style) throws Exception {
        String topic = topic(2, 5);
        Member one = new Member(style, unique("pause"), Map.of()).on(topic);
        until(() -> one.read.size() == 10, "all records", one);
        TopicPartition zero = new TopicPartition(topic, 0);
        TopicPartition other = new TopicPartition(topic, 1);
        one.consumer.pause(List.of(zero));
        one.consumer.seek(zero, 3);
        one.consumer.seek(other, 3);
        until(() -> one.read.size() == 12, "one partition", one);
        expect(one.read.subList(10, 12).equals(List.of("1/3", "1/4")), one.read);
        one.consumer.resume(List.of(zero));
        until(() -> one.read.size() == 14, "the other", one);
        expect(one.read.subList(12, 14).equals(List.of("0/3", "0/4")), one.read);
        one.consumer.seekToBeginning(List.of(zero));
        expect(one.consumer.position(zero) == 0, "beginning");
        one.consumer.seekToEnd(List.of(zero));
        expect(one.consumer.position(zero) == 5, "end");
    }

    static void commits(String style) throws Exception {
        String topic = topic(1, 10);
        String group = unique("commits");
        TopicPartition zero = new TopicPartition(topic, 0);
        Map<String, Object> manual = Map.of("enable.auto.commit", false);
        Member first = new Member(style, group, manual).on(topic);
        until(() -> first.read.size() == 10, "all records", first);
        first.consumer.commitSync(Map.of(zero, new OffsetAndMetadata(4, "so far")));
        OffsetAndMetadata found = first.consumer.committed(Set.of(zero)).get(zero);
        expect(found.offset() == 4 && found.metadata().equals("so far"), found);
        List<String> told = new ArrayList<>();
        first.consumer.commitAsync(Map.of(zero, new OffsetAndMetadata(6)),
                (offsets, error) -> told.add(offsets.get(zero).offset() + " " + error));
        until(() -> !told.isEmpty(), "the callback", first);
        expect(told.equals(List.of("6 null")), told);
        first.close();
        Member second = new Member(style, group, manual).on(topic);
        until(() -> second.read.size() == 4, "what was not committed", second);
        expect(second.read.get(0).equals("0/6"), second.read);
    }

    static void commitOfARemovedMember(String style) throws Exception {
        if (style.equals("consumer")) {
            return; // the admin call is for classic groups
        }
        String topic = topic(1, 3);
        String group = unique("removed");
        Map<String, Object> settings = Map.of("enable.auto.commit", false, "heartbeat.interval.ms", 5000,
                "group.instance.id", "one");
        Member one = new Member(style, group, settings).on(topic);
        until(() -> one.read.size() == 3, "all records", one);
        admin.removeMembersFromConsumerGroup(group,
                new RemoveMembersFromConsumerGroupOptions(List.of(new MemberToRemove("one")))).all().get();
        Throwable refused = failure(() -> one.consumer.commitSync());
        expect(refused instanceof CommitFailedException || refused instanceof FencedInstanceIdException, refused);
        expect(admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get().isEmpty(), "committed");
    }

    static void resetRules(String style) throws Exception {
        String topic = topic(1, 5);
        TopicPartition zero = new TopicPartition(topic, 0);
        Member latest = new Member(style, unique("latest"), Map.of("auto.offset.reset", "latest")).on(topic);
        untilShared(1, latest);
        expect(latest.consumer.position(zero) == 5, "latest");
        Member old = new Member(style, unique("duration"), Map.of("auto.offset.reset", "by_duration:PT1H")).on(topic);
        until(() -> old.read.size() == 5, "the last hour", old);
        Member none = new Member(style, unique("none"), Map.of("auto.offset.reset", "none")).on(topic);
        Throwable refused = failure(() -> until(() -> false, "an error", none));
        expect(refused instanceof NoOffsetForPartitionException, refused);
        String group = unique("range");
        admin.alterConsumerGroupOffsets(group, Map.of(zero, new OffsetAndMetadata(1000))).all().get();
        Member back = new Member(style, group, Map.of()).on(topic);
        until(() -> back.read.size() == 5, "an offset out of range to be reset", back);
    }

    static void pattern(String style) throws Exception {
        String prefix = unique("pattern");
        topic(prefix + "-one", 1, 1);
        topic(prefix + "-two", 2, 1);
        topic("not-" + prefix, 1, 1);
        Member one = new Member(style, unique("pattern"), Map.of("metadata.max.age.ms", 500));
        if (style.equals("consumer")) {
            one.consumer.subscribe(new SubscriptionPattern("^" + prefix + "-.*"), one);
        } else {
            one.consumer.subscribe(Pattern.compile("^" + prefix + "-.*"), one);
        }
        untilShared(3, one);
        Set<String> topics = new TreeSet<>();
        one.owned.forEach(each -> topics.add(each.topic()));
        expect(topics.equals(Set.of(prefix + "-one", prefix + "-two")), topics);
        if (style.equals("consumer")) {
            Member bad = new Member(style, unique("bad"), Map.of());
            bad.consumer.subscribe(new SubscriptionPattern("(?=ahead)"), bad);
            Throwable refused = failure(() -> until(() -> false, "a refusal", bad));
            expect(refused instanceof InvalidRegularExpression, refused);
        }
    }

    static void maxPollInterval(String style) throws Exception {
        String topic = topic(2, 1);
        String group = unique("poll");
        Map<String, Object> settings = Map.of("max.poll.interval.ms", 800);
        Member first = new Member(style, group, settings).on(topic);
        Member second = new Member(style, group, settings).on(topic);
        untilShared(2, first, second);
        until(() -> second.owned.size() == 2, "the one that polls to get all", second);
        until(() -> !first.lost.isEmpty(), "the other to learn of it", first, second);
        untilShared(2, first, second);
    }

    static GroupState state(String group) throws Exception {
        return admin.describeConsumerGroups(List.of(group)).all().get().get(group).groupState();
    }

    static void adminCalls(String style) throws Exception {
        String topic = topic(2, 10);
        String group = unique("admin");
        TopicPartition zero = new TopicPartition(topic, 0);
        TopicPartition other = new TopicPartition(topic, 1);
        Member one = new Member(style, group, Map.of("client.id", "alpha")).on(topic);
        until(() -> one.read.size() == 20, "all records", one);
        one.consumer.commitSync();
        GroupType type = style.equals("consumer") ? GroupType.CONSUMER : GroupType.CLASSIC;
        var listed = admin.listGroups(new ListGroupsOptions().withTypes(Set.of(type))
                .inGroupStates(Set.of(GroupState.STABLE))).all().get();
        expect(listed.stream().anyMatch(each -> each.groupId().equals(group)), listed);
        ConsumerGroupDescription found = admin.describeConsumerGroups(List.of(group)).all().get().get(group);
        expect(found.groupState() == GroupState.STABLE && found.type() == type, found);
        var member = found.members().iterator().next();
        expect(member.clientId().equals("alpha") && member.assignment().topicPartitions().size() == 2, found);
        Map<TopicPartition, OffsetAndMetadata> move = Map.of(zero, new OffsetAndMetadata(3));
        Throwable refused = failure(() -> admin.alterConsumerGroupOffsets(group, move).all().get());
        expect(refused instanceof UnknownMemberIdException, refused);
        refused = failure(() -> admin.deleteConsumerGroupOffsets(group, Set.of(zero)).all().get());
        expect(refused instanceof GroupSubscribedToTopicException, refused);
        refused = failure(() -> admin.deleteConsumerGroups(List.of(group)).all().get());
        expect(refused instanceof GroupNotEmptyException, refused);
        one.close();
        expect(state(group) == GroupState.EMPTY, "state");
        admin.alterConsumerGroupOffsets(group, move).all().get();
        admin.deleteConsumerGroupOffsets(group, Set.of(other)).all().get();
        var offsets = admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get();
        expect(offsets.size() == 1 && offsets.get(zero).offset() == 3, offsets);
        admin.deleteConsumerGroups(List.of(group)).all().get();
        refused = failure(() -> admin.describeConsumerGroups(List.of(group)).all().get());
        expect(refused instanceof GroupIdNotFoundException, refused);
    }

    static GroupType type(String group) throws Exception {
        return admin.describeConsumerGroups(List.of(group)).all().get().get(group).type();
    }

    /** A classic group becomes a consumer group with its first such member, and classic again with the last. */
    static void migration() throws Exception {
        String topic = topic(4, 10);
        String group = unique("migration");
        Member first = new Member("cooperative", group, Map.of()).on(topic);
        Member second = new Member("cooperative", group, Map.of()).on(topic);
        untilShared(4, first, second);
        until(() -> first.read.size() + second.read.size() == 40, "all records", first, second);
        first.consumer.commitSync();
        second.consumer.commitSync();
        expect(type(group) == GroupType.CLASSIC, "not classic");
        Member third = new Member("consumer", group, Map.of()).on(topic);
        until(() -> third.owned.size() >= 1 && first.owned.size() + second.owned.size() + third.owned.size() == 4,
                "a mixed group", first, second, third);
        expect(type(group) == GroupType.CONSUMER, "not upgraded");
        expect(third.read.isEmpty(), "read again: " + third.read);
        first.close();
        second.close();
        untilShared(4, third);
        expect(type(group) == GroupType.CONSUMER, "not a consumer group");
        Member fourth = new Member("cooperative", group, Map.of()).on(topic);
        untilShared(4, third, fourth);
        third.close();
        untilShared(4, fourth);
        expect(type(group) == GroupType.CLASSIC, "not downgraded");
        fourth.consumer.commitSync();
        expect(third.read.isEmpty() && fourth.read.isEmpty(), "read again");
    }

    static void simpleGroup() throws Exception {
        String topic = topic(1, 5);
        String group = unique("simple");
        TopicPartition zero = new TopicPartition(topic, 0);
        Member one = new Member("range", group, Map.of());
        one.consumer.assign(List.of(zero));
        until(() -> one.read.size() == 5, "all records", one);
        one.consumer.commitSync();
        var listed = admin.listGroups().all().get();
        expect(listed.stream().anyMatch(each -> each.groupId().equals(group) && each.isSimpleConsumerGroup()), listed);
        expect(one.consumer.committed(Set.of(zero)).get(zero).offset() == 5, "committed");
    }

    /** From eager to cooperative in two rolls, as Kafka's guide tells: both, then only the new one. */
    static void rollingAssignors() throws Exception {
        String topic = topic(4, 1);
        String group = unique("rolling");
        String strategy = "partition.assignment.strategy";
        Map<String, Object> both = Map.of(strategy,
                List.of(ASSIGNORS + "CooperativeStickyAssignor", ASSIGNORS + "RangeAssignor"));
        Member first = new Member("range", group, Map.of()).on(topic);
        untilShared(4, first);
        Member second = new Member("range", group, both).on(topic);
        untilShared(4, first, second);
        first.close();
        Member third = new Member("range", group, both).on(topic);
        untilShared(4, second, third);
        second.close();
        Member fourth = new Member("cooperative", group, Map.of()).on(topic);
        untilShared(4, third, fourth);
        ConsumerGroupDescription found = admin.describeConsumerGroups(List.of(group)).all().get().get(group);
        expect(found.partitionAssignor().equals("cooperative-sticky"), found);
    }
}
