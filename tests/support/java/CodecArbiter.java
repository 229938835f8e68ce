import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.Method;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.Map;

import com.fasterxml.jackson.databind.JsonNode;
import org.apache.kafka.common.protocol.ApiKeys;
import org.apache.kafka.common.protocol.ApiMessage;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.ObjectSerializationCache;

/**
 * Reads message bytes with Kafka's own classes, one question per line, and answers each with one
 * line: the bytes Kafka would write for what it read, and the values as JSON.
 *
 *   M class-name version hex    ->  hex json       (all bytes must be used)
 *   V class-name                ->  lowest highest (versions the class knows)
 *   H api-key version           ->  request-header-version response-header-version
 *
 * A refusal is answered with "! reason".
 */
public class CodecArbiter {
    private static final HexFormat HEX = HexFormat.of();
    private static final Map<String, Method> CONVERTERS = new HashMap<>();

    public static void main(String[] arguments) throws Exception {
        var in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        var out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        String line;
        while ((line = in.readLine()) != null) {
            String answer;
            try {
                answer = answer(line.split(" ", -1));
            } catch (Throwable error) {
                answer = "! " + String.valueOf(error).replace('\n', ' ');
            }
            out.println(answer);
        }
        out.flush();
    }

    private static String answer(String[] words) throws Exception {
        switch (words[0]) {
            case "M":
                return message(words[1], Short.parseShort(words[2]), HEX.parseHex(words[3]));
            case "V":
                ApiMessage empty = make(words[1]);
                return empty.lowestSupportedVersion() + " " + empty.highestSupportedVersion();
            case "H":
                ApiKeys key = ApiKeys.forId(Integer.parseInt(words[1]));
                short version = Short.parseShort(words[2]);
                return key.requestHeaderVersion(version) + " " + key.responseHeaderVersion(version);
            default:
                throw new IllegalArgumentException(words[0]);
        }
    }

    private static String message(String name, short version, byte[] bytes) throws Exception {
        ApiMessage message = make(name);
        ByteBuffer buffer = ByteBuffer.wrap(bytes);
        message.read(new ByteBufferAccessor(buffer), version);
        if (buffer.hasRemaining()) {
            return "! " + buffer.remaining() + " bytes left over";
        }
        var cache = new ObjectSerializationCache();
        ByteBuffer written = ByteBuffer.allocate(message.size(cache, version));
        message.write(new ByteBufferAccessor(written), cache, version);
        return HEX.formatHex(written.array(), 0, written.position()) + " " + json(message, version);
    }

    private static JsonNode json(ApiMessage message, short version) throws Exception {
        String name = message.getClass().getName();
        Method converter = CONVERTERS.get(name);
        if (converter == null) {
            Class<?> owner = Class.forName(name + "JsonConverter");
            converter = owner.getMethod("write", message.getClass(), short.class, boolean.class);
            CONVERTERS.put(name, converter);
        }
        return (JsonNode) converter.invoke(null, message, version, false);
    }

    private static ApiMessage make(String name) throws Exception {
        return (ApiMessage) Class.forName(name).getDeclaredConstructor().newInstance();
    }
}
