import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.Map;
import org.apache.kafka.common.utils.Exit;

/** Reads one JSON array per line (class name, arguments), runs each, answers one JSON object per line. */
public class ToolBatch {
    static final class Ended extends RuntimeException {
        Ended(int code) {
            super("exit " + code, null, false, false);
        }
    }

    /** The code a tool ended with; some catch the exception and then try to end once more. */
    private static Integer ended;

    private static void end(int code) {
        if (ended == null) {
            ended = code;
        }
        throw new Ended(code);
    }

    public static void main(String[] ignored) throws Exception {
        ObjectMapper json = new ObjectMapper();
        PrintStream answers = System.out;
        PrintStream errors = System.err;
        // Tools end by Exit.exit: turned into an exception, so that the JVM lives for the next one.
        Exit.setExitProcedure((code, message) -> end(code));
        Exit.setHaltProcedure((code, message) -> end(code));
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = json.readValue(line, String[].class);
            ByteArrayOutputStream out = new ByteArrayOutputStream();
            ByteArrayOutputStream err = new ByteArrayOutputStream();
            System.setOut(new PrintStream(out, true, StandardCharsets.UTF_8));
            System.setErr(new PrintStream(err, true, StandardCharsets.UTF_8));
            int code = run(words);
            System.setOut(answers);
            System.setErr(errors);
            Map<String, Object> answer = new LinkedHashMap<>();
            answer.put("exit", code);
            answer.put("out", out.toString(StandardCharsets.UTF_8));
            answer.put("err", err.toString(StandardCharsets.UTF_8));
            answers.println(json.writeValueAsString(answer));
        }
        answers.flush();
        // Some tools leave threads behind that would keep the JVM alive.
        Runtime.getRuntime().halt(0);
    }

    private static int run(String[] words) throws ReflectiveOperationException {
        Object arguments = Arrays.copyOfRange(words, 1, words.length);
        ended = null;
        try {
            Class.forName(words[0]).getMethod("main", String[].class).invoke(null, arguments);
            return ended == null ? 0 : ended;
        } catch (InvocationTargetException thrown) {
            if (ended != null) {
                return ended;
            }
            thrown.getCause().printStackTrace();
            return 1;
        }
    }
}
