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
import org.apache.spark.sql.catalyst.expressions.And;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.expressions.AttributeSet;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.plans.logical.Aggregate;
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
import org.apache.spark.sql.sources.Filter;
import org.apache.spark.sql.sources.IsNotNull;
import org.apache.spark.sql.sources.Not;
import org.apache.spark.sql.types.Metadata;
import org.apache.spark.sql.types.MetadataBuilder;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import scala.Option;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;
import scala.runtime.AbstractPartialFunction;

public final class OwnScans extends Rule {
    private static final String FORMAT = "lakebed";
    private static final List INDEXED = Arrays.asList(new Object[] {"partition", "offset", "timestamp"});

    /** What tells the source, with each column, that what it plans is for one scan alone. */
    private static final Metadata OWN = new MetadataBuilder().putBoolean("lakebed.own", true).build();

    private final Field sourceOfTable;

    public OwnScans() throws NoSuchFieldException {
        sourceOfTable = PythonTable.class.getDeclaredField("ds");
        sourceOfTable.setAccessible(true);
    }

    /** A subquery is optimized alone before its query is. It is left until then, so that one pass sees every scan of a query. */
    public TreeNode apply(TreeNode plan) {
        if (plan instanceof Subquery) {
            return plan;
        }
        try {
            return ((LogicalPlan) plan).transformDownWithSubqueries(new Pass(sourceOfTable));
        } catch (RuntimeException unforeseen) {
            log().warn("Topics are read without the filters and columns of the query, which is right but slow", unforeseen);
            return plan;
        }
    }

    /** One pass over a plan and its subqueries. */
    private static final class Pass extends AbstractPartialFunction {
        private final Field sourceOfTable;
        private final List frames = new ArrayList();

        Pass(Field sourceOfTable) {
            this.sourceOfTable = sourceOfTable;
        }

        public boolean isDefinedAt(Object node) {
            return true;
        }

        public Object applyOrElse(Object node, scala.Function1 otherwise) {
            return apply(node);
        }

        /** What lies below a projection or an aggregation owes it only what it mentions; anything else is owed every column. */
        public Object apply(Object given) {
            LogicalPlan node = (LogicalPlan) given;
            if (node instanceof Project || node instanceof Aggregate) {
                LogicalPlan child = (LogicalPlan) node.children().head();
                return withChild(node, child, owned(child, node.references(), new ArrayList()));
            }
            return owned(node, null, new ArrayList());
        }

        /** The node with a scan of its own, if it is a shared scan or one below conditions. */
        private LogicalPlan owned(LogicalPlan node, AttributeSet wanted, List conditions) {
            if (node instanceof org.apache.spark.sql.catalyst.plans.logical.Filter) {
                conditions.add(((org.apache.spark.sql.catalyst.plans.logical.Filter) node).condition());
                LogicalPlan child = (LogicalPlan) node.children().head();
                AttributeSet all = wanted == null ? null : wanted.$plus$plus(node.references());
                return withChild(node, child, owned(child, all, conditions));
            }
            if (node instanceof DataSourceV2ScanRelation) {
                DataSourceV2ScanRelation scanned = (DataSourceV2ScanRelation) node;
                boolean isShared = scanned.scan().getClass() == PythonScan.class;
                if (isShared && FORMAT.equalsIgnoreCase(scanned.relation().table().name())) {
                    return own(scanned, wanted, conditions);
                }
            }
            return node;
        }

        private LogicalPlan own(DataSourceV2ScanRelation shared, AttributeSet wanted, List conditions) {
            List columns = columns(shared, wanted);
            StructType schema = new StructType();
            for (Object each : columns) {
                AttributeReference column = (AttributeReference) each;
                schema = schema.add(column.name(), column.dataType(), column.nullable(), OWN);
            }
            Frame frame = frame(shared);
            frame.mentions++;
            OwnScan scan = new OwnScan(frame, schema, filters(conditions));
            return shared.copy(shared.relation(), scan, seq(columns), shared.keyGroupedPartitioning(), shared.ordering());
        }

        private Frame frame(DataSourceV2ScanRelation shared) {
            CaseInsensitiveStringMap options = shared.relation().options();
            PythonDataSourceV2 source;
            try {
                source = (PythonDataSourceV2) sourceOfTable.get(shared.relation().table());
            } catch (IllegalAccessException refused) {
                throw new IllegalStateException(refused);
            }
            for (Object each : frames) {
                Frame known = (Frame) each;
                if (known.shared == source && known.options.equals(options)) {
                    return known;
                }
            }
            Frame found = new Frame(source, options);
            frames.add(found);
            return found;
        }
    }

    /** A frame in one query. With several scans of it, a source is made for the query that knows the offsets all of them read. */
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
            if (mentions == 1) {
                return shared.getOrCreateDataSourceInPython(FORMAT, options, Option.empty());
            }
            if (made == null) {
                Map said = new HashMap(options.asCaseSensitiveMap());
                said.put("oneVersion", "true");
                made = shared.source().createDataSourceInPython(FORMAT, new CaseInsensitiveStringMap(said), Option.empty());
            }
            return made;
        }
    }

    /** The source of one scan: its tasks are planned when they are first asked for, and kept for it alone. */
    private static final class OwnSource extends PythonDataSourceV2 {
        private final Frame frame;
        private final StructType schema;
        private final Filter[] filters;
        private PythonDataSourceReadInfo planned = null;

        OwnSource(Frame frame, StructType schema, Filter[] filters) {
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
        private Filter[] atLeastOne() {
            List all = new ArrayList(Arrays.asList(filters));
            all.add(new IsNotNull(schema.fieldNames()[0]));
            return (Filter[]) all.toArray(new Filter[0]);
        }
    }

    /** By its class a scan that has its own source is told from one that has not. */
    private static final class OwnScan extends PythonScan {
        OwnScan(Frame frame, StructType schema, Filter[] filters) {
            super(new OwnSource(frame, schema, filters), FORMAT, schema, frame.options, filters);
        }
    }

    /** The wanted columns in their order; the narrowest when rows are only counted. */
    private static List columns(DataSourceV2ScanRelation shared, AttributeSet wanted) {
        List found = new ArrayList();
        AttributeReference narrowest = null;
        for (Object each : CollectionConverters.asJava(shared.output())) {
            AttributeReference column = (AttributeReference) each;
            if (wanted == null || wanted.contains(column)) {
                found.add(column);
            }
            if (narrowest == null || column.dataType().defaultSize() < narrowest.dataType().defaultSize()) {
                narrowest = column;
            }
        }
        return found.isEmpty() ? Collections.singletonList(narrowest) : found;
    }

    /** Those parts of the conditions that let the source leave something out. */
    private static Filter[] filters(List conditions) {
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
            if (filter.isDefined() && helps((Filter) filter.get())) {
                found.add(filter.get());
            }
        }
        return (Filter[]) found.toArray(new Filter[0]);
    }

    private static boolean helps(Filter filter) {
        String[] names = filter.references();
        return names.length == 1 && INDEXED.contains(names[0]) && !(filter instanceof Not) && !(filter instanceof IsNotNull);
    }

    private static LogicalPlan withChild(LogicalPlan node, LogicalPlan before, LogicalPlan child) {
        return child == before ? node : (LogicalPlan) node.withNewChildren(seq(Collections.singletonList(child)));
    }

    private static Seq seq(List items) {
        return CollectionConverters.asScala(items).toSeq();
    }
}
