/*
 * An optimizer rule: every scan of a topic in a query is planned by itself, with the query's filters and just the columns it needs.
 *
 * Spark keeps one source per frame, and in it the tasks that were planned first, for whatever query comes next. A scan that this rule
 * has been over has a source of its own, so nothing planned for it is ever used elsewhere. Filters stay in the plan: Spark looks at
 * every row again. All scans of one frame in a query read the same offsets.
 *
 * Compiled by Janino within Spark's driver: no lambdas, and methods that override generic ones have the erased types.
 */
package lakebed;

import java.lang.reflect.Field;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.ExperimentalMethods;
import org.apache.spark.sql.catalyst.expressions.And;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.expressions.AttributeSet;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.plans.logical.Aggregate;
import org.apache.spark.sql.catalyst.plans.logical.Filter;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.catalyst.plans.logical.Subquery;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.execution.datasources.DataSourceStrategy$;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2ScanRelation;
import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceCreationResult;
import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceReadInfo;
import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceV2;
import org.apache.spark.sql.execution.datasources.v2.python.PythonFilterPushdownResult;
import org.apache.spark.sql.execution.datasources.v2.python.PythonScan;
import org.apache.spark.sql.execution.datasources.v2.python.PythonTable;
import org.apache.spark.sql.execution.datasources.v2.python.UserDefinedPythonDataSource;
import org.apache.spark.sql.sources.IsNotNull;
import org.apache.spark.sql.sources.Not;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import scala.Option;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;
import scala.runtime.AbstractPartialFunction;

public final class OwnScans extends Rule {
    private static final String FORMAT = "lakebed";
    private static final List INDEXED = Arrays.asList(new String[] {"partition", "offset", "timestamp"});

    private final Field frameOfTable;

    public OwnScans() throws NoSuchFieldException {
        frameOfTable = PythonTable.class.getDeclaredField("ds");
        frameOfTable.setAccessible(true);
    }

    /** Add the rule to those of a session. */
    public void addTo(ExperimentalMethods session) {
        List rules = new ArrayList(CollectionConverters.asJava(session.extraOptimizations()));
        rules.add(this);
        session.extraOptimizations_$eq(seq(rules));
    }

    /** A subquery is optimized alone before its query is; it is left until then, when everything that is known of it is in the plan. */
    public TreeNode apply(TreeNode plan) {
        if (plan instanceof Subquery) {
            return plan;
        }
        try {
            return ((LogicalPlan) plan).transformDownWithSubqueries(new Replacement(frameOfTable));
        } catch (RuntimeException unforeseen) {
            log().warn("Topics are read without the filters and columns of the query, which is right but slow", unforeseen);
            return plan;
        }
    }

    static Seq seq(List items) {
        return CollectionConverters.asScala(items).toSeq();
    }

    /** One pass over a plan and its subqueries. */
    private static final class Replacement extends AbstractPartialFunction {
        private final Field frameOfTable;
        private final List frames = new ArrayList();

        Replacement(Field frameOfTable) {
            this.frameOfTable = frameOfTable;
        }

        public boolean isDefinedAt(Object node) {
            return true;
        }

        /** What lies below a projection or an aggregation owes it only what it mentions; anything else is owed every column. */
        public Object apply(Object given) {
            LogicalPlan node = (LogicalPlan) given;
            if (node instanceof Project || node instanceof Aggregate) {
                List wanted = new ArrayList(Collections.singletonList(node.references()));
                LogicalPlan child = (LogicalPlan) node.children().head();
                return withChild(node, child, owned(child, new ArrayList(), wanted));
            }
            return owned(node, new ArrayList(), null);
        }

        public Object applyOrElse(Object node, scala.Function1 otherwise) {
            return apply(node);
        }

        private LogicalPlan owned(LogicalPlan node, List conditions, List wanted) {
            if (node instanceof Filter) {
                Filter filter = (Filter) node;
                conditions.add(filter.condition());
                if (wanted != null) {
                    wanted.add(filter.references());
                }
                LogicalPlan child = (LogicalPlan) filter.children().head();
                return withChild(node, child, owned(child, conditions, wanted));
            }
            if (node instanceof DataSourceV2ScanRelation) {
                DataSourceV2ScanRelation shared = (DataSourceV2ScanRelation) node;
                boolean ours = shared.scan().getClass() == PythonScan.class && shared.relation().table().name().equals(FORMAT);
                return ours ? own(shared, conditions, wanted) : node;
            }
            return node;
        }

        private LogicalPlan own(DataSourceV2ScanRelation shared, List conditions, List wanted) {
            Frame frame = frame(shared);
            List columns = columns(shared, wanted);
            StructType schema = new StructType();
            for (int at = 0; at < columns.size(); at++) {
                AttributeReference column = (AttributeReference) columns.get(at);
                schema = schema.add(column.name(), column.dataType(), column.nullable());
            }
            org.apache.spark.sql.sources.Filter[] filters = filters(conditions);
            frame.mentions++;
            OwnSource source = new OwnSource(frame, schema, filters);
            OwnScan scan = new OwnScan(source, schema, frame.options, filters);
            return shared.copy(shared.relation(), scan, seq(columns), shared.keyGroupedPartitioning(), shared.ordering());
        }

        private Frame frame(DataSourceV2ScanRelation shared) {
            PythonDataSourceV2 source;
            try {
                source = (PythonDataSourceV2) frameOfTable.get(shared.relation().table());
            } catch (IllegalAccessException refused) {
                throw new IllegalStateException(refused);
            }
            CaseInsensitiveStringMap options = shared.relation().options();
            for (int at = 0; at < frames.size(); at++) {
                Frame known = (Frame) frames.get(at);
                if (known.shared == source && known.options.equals(options)) {
                    return known;
                }
            }
            Frame frame = new Frame(source, options);
            frames.add(frame);
            return frame;
        }
    }

    /** The wanted columns in their order; the narrowest when rows are only counted. */
    private static List columns(DataSourceV2ScanRelation shared, List wanted) {
        List found = new ArrayList();
        AttributeReference narrowest = null;
        for (int at = 0; at < shared.output().size(); at++) {
            AttributeReference column = (AttributeReference) shared.output().apply(at);
            boolean isWanted = wanted == null;
            for (int by = 0; !isWanted && by < wanted.size(); by++) {
                isWanted = ((AttributeSet) wanted.get(by)).contains(column);
            }
            if (isWanted) {
                found.add(column);
            }
            if (narrowest == null || column.dataType().defaultSize() < narrowest.dataType().defaultSize()) {
                narrowest = column;
            }
        }
        return found.isEmpty() ? Collections.singletonList(narrowest) : found;
    }

    private static org.apache.spark.sql.sources.Filter[] filters(List conditions) {
        List left = new ArrayList(conditions);
        List found = new ArrayList();
        while (!left.isEmpty()) {
            Expression condition = (Expression) left.remove(0);
            if (condition instanceof And) {
                left.add(0, ((And) condition).right());
                left.add(0, ((And) condition).left());
                continue;
            }
            Option filter = DataSourceStrategy$.MODULE$.translateFilter(condition, true);
            if (filter.isDefined() && helps((org.apache.spark.sql.sources.Filter) filter.get())) {
                found.add(filter.get());
            }
        }
        return (org.apache.spark.sql.sources.Filter[]) found.toArray(new org.apache.spark.sql.sources.Filter[0]);
    }

    /** Whether the source can leave anything out because of the filter. */
    private static boolean helps(org.apache.spark.sql.sources.Filter filter) {
        String[] names = filter.references();
        return names.length == 1 && INDEXED.contains(names[0]) && !(filter instanceof Not);
    }

    private static LogicalPlan withChild(LogicalPlan node, LogicalPlan before, LogicalPlan child) {
        return child == before ? node : (LogicalPlan) node.withNewChildren(seq(Collections.singletonList(child)));
    }

    /** A frame in one query. What it is read from is made once, and so are the offsets that each of its mentions reads. */
    private static final class Frame {
        final PythonDataSourceV2 shared;
        final CaseInsensitiveStringMap options;
        int mentions = 0;
        private PythonDataSourceCreationResult made = null;

        Frame(PythonDataSourceV2 shared, CaseInsensitiveStringMap options) {
            this.shared = shared;
            this.options = options;
        }

        synchronized PythonDataSourceCreationResult made() {
            if (made == null) {
                Map said = new HashMap(options.asCaseSensitiveMap());
                said.put("pushdown", "true");
                said.put("oneVersion", String.valueOf(mentions > 1));
                made = shared.source().createDataSourceInPython(FORMAT, new CaseInsensitiveStringMap(said), Option.empty());
            }
            return made;
        }
    }

    /** The source of one scan: its tasks are planned when they are first asked for, and kept for it alone. */
    private static final class OwnSource extends PythonDataSourceV2 {
        private final Frame frame;
        private final StructType schema;
        private final org.apache.spark.sql.sources.Filter[] filters;
        private PythonDataSourceReadInfo planned = null;

        OwnSource(Frame frame, StructType schema, org.apache.spark.sql.sources.Filter[] filters) {
            this.frame = frame;
            this.schema = schema;
            this.filters = filters;
            setShortName(FORMAT);
        }

        public UserDefinedPythonDataSource source() {
            return frame.shared.source();
        }

        public synchronized PythonDataSourceReadInfo getOrCreateReadInfo(
                String name, CaseInsensitiveStringMap options, StructType wanted, boolean streaming) {
            if (planned == null) {
                Option pushed = source().pushdownFiltersInPython(frame.made(), schema, atLeastOne());
                planned = ((PythonFilterPushdownResult) pushed.get()).readInfo();
            }
            return planned;
        }

        /** Spark only plans in this way when there are filters, so there is one that the source has nothing to do with. */
        private org.apache.spark.sql.sources.Filter[] atLeastOne() {
            List all = new ArrayList(Arrays.asList(filters));
            all.add(new IsNotNull(schema.fieldNames()[0]));
            return (org.apache.spark.sql.sources.Filter[]) all.toArray(filters);
        }
    }

    /** What tells a scan that has its own source from one that has not. */
    private static final class OwnScan extends PythonScan {
        OwnScan(
                PythonDataSourceV2 source,
                StructType schema,
                CaseInsensitiveStringMap options,
                org.apache.spark.sql.sources.Filter[] filters) {
            super(source, FORMAT, schema, options, filters);
        }
    }
}
