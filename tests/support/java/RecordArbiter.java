import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;
import java.util.function.Supplier;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.errors.CorruptRecordException;
import org.apache.kafka.common.errors.RecordTooLargeException;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.record.internal.CompressionType;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.MemoryRecordsBuilder;
import org.apache.kafka.common.record.internal.MutableRecordBatch;
import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.common.record.internal.RecordBatch;
import org.apache.kafka.common.InvalidRecordException;
import org.apache.kafka.common.requests.ProduceRequest;
import org.apache.kafka.common.requests.ProduceResponse;
import org.apache.kafka.common.utils.BufferSupplier;
import org.apache.kafka.common.utils.PrimitiveRef;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.storage.internals.log.AppendOrigin;
import org.apache.kafka.storage.internals.log.LogValidator;
import org.apache.kafka.storage.internals.log.RecordValidationException;

/** One JSON question per line about record batches, answered by Kafka's own classes. */
public class RecordArbiter {
    static final ObjectMapper JSON = new ObjectMapper();
    static final HexFormat HEX = HexFormat.of();

    public static void main(String[] ignored) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            JsonNode question = JSON.readTree(line);
            ObjectNode answer = JSON.createObjectNode();
            switch (question.get("ask").asText()) {
                case "read" -> read(question, answer);
                case "write" -> write(question, answer);
                default -> validate(question, answer);
            }
            System.out.println(JSON.writeValueAsString(answer));
        }
    }

    static MemoryRecords records(JsonNode question) {
        return MemoryRecords.readableRecords(ByteBuffer.wrap(HEX.parseHex(question.get("batch").asText())));
    }

    static void read(JsonNode question, ObjectNode answer) {
        ArrayNode found = answer.putArray("records");
        try {
            for (RecordBatch batch : records(question).batches()) {
                batch.ensureValid();
                for (Record record : batch) {
                    record.ensureValid();
                    ArrayNode row = found.addArray();
                    row.add(record.offset()).add(record.timestamp());
                    row.add(hex(record.key())).add(hex(record.value()));
                    ArrayNode headers = row.addArray();
                    for (Header header : record.headers()) {
                        byte[] value = header.value();
                        headers.addArray().add(header.key()).add(value == null ? null : HEX.formatHex(value));
                    }
                }
            }
        } catch (RuntimeException error) {
            answer.put("error", error.toString());
        }
    }

    static void write(JsonNode question, ObjectNode answer) {
        Compression compression = Compression.of(CompressionType.forId(question.get("codec").asInt())).build();
        MemoryRecordsBuilder builder = MemoryRecords.builder(ByteBuffer.allocate(1024), RecordBatch.MAGIC_VALUE_V2,
            compression, TimestampType.CREATE_TIME, 0L, RecordBatch.NO_TIMESTAMP,
            question.get("producerId").asLong(), (short) question.get("producerEpoch").asInt(),
            question.get("baseSequence").asInt());
        for (JsonNode row : question.get("records")) {
            Header[] headers = new Header[row.get(4).size()];
            for (int i = 0; i < headers.length; i++) {
                JsonNode header = row.get(4).get(i);
                headers[i] = new RecordHeader(header.get(0).asText(), bytes(header.get(1)));
            }
            builder.appendWithOffset(row.get(0).asLong(), row.get(1).asLong(), bytes(row.get(2)), bytes(row.get(3)), headers);
        }
        ByteBuffer built = builder.build().buffer();
        byte[] batch = new byte[built.remaining()];
        built.get(batch);
        answer.put("batch", HEX.formatHex(batch));
    }

    /** The checks of a produce, in the broker's order: request, then log, then validator. */
    static void validate(JsonNode question, ObjectNode answer) {
        ArrayNode bad = answer.putArray("recordErrors");
        Throwable refusal = null;
        try {
            MemoryRecords records = records(question);
            ProduceRequest.validateRecords((short) question.get("version").asInt(), records);
            CompressionType source = analyze(records, question.get("maxMessageBytes").asInt());
            appendable(records, source, question);
        } catch (RecordValidationException error) {
            refusal = error.invalidException();
            for (ProduceResponse.RecordError row : error.recordErrors()) bad.add(row.batchIndex);
        } catch (RuntimeException error) {
            refusal = error;
        }
        answer.put("error", refusal == null ? "NONE" : Errors.forException(refusal).name());
        answer.put("message", refusal == null ? "" : refusal.toString());
    }

    static CompressionType analyze(MemoryRecords records, int maxMessageBytes) {
        CompressionType source = CompressionType.NONE;
        for (MutableRecordBatch batch : records.batches()) {
            if (batch.baseOffset() != 0) throw new InvalidRecordException("base offset");
            if (batch.sizeInBytes() > maxMessageBytes) throw new RecordTooLargeException("size");
            if (!batch.isValid()) throw new CorruptRecordException("crc");
            if (batch.compressionType() != CompressionType.NONE) source = batch.compressionType();
        }
        return source;
    }

    static void appendable(MemoryRecords records, CompressionType source, JsonNode question) {
        Time time = new StoppedTime(question.get("now").asLong());
        new LogValidator(records, new TopicPartition("t", 0), time, source, Compression.of(source).build(),
            question.get("compacted").asBoolean(), RecordBatch.MAGIC_VALUE_V2,
            question.get("appendTime").asBoolean() ? TimestampType.LOG_APPEND_TIME : TimestampType.CREATE_TIME,
            question.get("beforeMaxMs").asLong(), question.get("afterMaxMs").asLong(), 0, AppendOrigin.CLIENT
        ).validateMessagesAndAssignOffsets(PrimitiveRef.ofLong(0), new NoMetrics(), BufferSupplier.NO_CACHING);
    }

    static String hex(ByteBuffer buffer) {
        if (buffer == null) return null;
        byte[] content = new byte[buffer.remaining()];
        buffer.duplicate().get(content);
        return HEX.formatHex(content);
    }

    static byte[] bytes(JsonNode node) {
        return node.isNull() ? null : HEX.parseHex(node.asText());
    }

    record StoppedTime(long milliseconds) implements Time {
        public long nanoseconds() { return milliseconds * 1_000_000; }
        public void sleep(long ms) { }
        public void waitObject(Object object, Supplier<Boolean> condition, long deadline) { }
    }

    static final class NoMetrics implements LogValidator.MetricsRecorder {
        public void recordInvalidMagic() { }
        public void recordInvalidOffset() { }
        public void recordInvalidSequence() { }
        public void recordInvalidChecksums() { }
        public void recordNoKeyCompactedTopic() { }
    }
}
