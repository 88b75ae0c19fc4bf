/*
 * A Python source that tells the process of a streaming query by which trigger the query runs.
 *
 * A query that takes the first answer for everything there is asks for it like any other, so a reader that limits its batches has
 * to know which it serves. The query's own thread makes the process, and belongs to the query.
 *
 * Compiled by Janino within Spark's driver.
 */
package lakebed;

import java.lang.reflect.Field;
import java.util.HashMap;
import java.util.Map;
import org.apache.spark.api.python.PythonFunction;
import org.apache.spark.api.python.SimplePythonFunction;
import org.apache.spark.sql.execution.datasources.v2.python.UserDefinedPythonDataSource;
import org.apache.spark.sql.execution.streaming.runtime.StreamExecution;

public final class TellingSource extends UserDefinedPythonDataSource {
    public TellingSource(PythonFunction source) {
        super(source);
    }

    public PythonFunction createPythonFunction(byte[] source) {
        PythonFunction made = super.createPythonFunction(source);
        String trigger = trigger(Thread.currentThread());
        if (trigger == null) {
            return made;
        }
        Map environment = new HashMap(made.envVars());
        environment.put("LAKEBED_TRIGGER", trigger);
        return new SimplePythonFunction(
                made.command(), environment, made.pythonIncludes(), made.pythonExec(), made.pythonVer(), made.broadcastVars(), made.accumulator());
    }

    /** Executors know only Spark's own class, and have nobody to tell anything. */
    protected Object writeReplace() {
        return new UserDefinedPythonDataSource(dataSourceCls());
    }

    /** The trigger of the query whose thread this is; null when it is no query's. */
    private static String trigger(Thread thread) {
        for (Field field : thread.getClass().getDeclaredFields()) {
            try {
                field.setAccessible(true);
                Object owner = field.get(thread);
                if (owner instanceof StreamExecution) {
                    return ((StreamExecution) owner).trigger().getClass().getSimpleName();
                }
            } catch (IllegalAccessException refused) {
                return null;
            }
        }
        return null;
    }
}
