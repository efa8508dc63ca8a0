use std::fmt::Write as _;
use std::time::Duration;

use serde_json::json;

use super::*;

const NOW: Timestamp = Timestamp::UNIX_EPOCH;
/// Several times what the slowest takes without optimization.
const SOON: Duration = Duration::from_secs(1);

/// How much CPU time of its thread something takes: on a busy machine the clock says nothing.
fn timed<T>(run: impl FnOnce() -> T) -> (T, Duration) {
    let cpu = || {
        let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
        let nanos = stat.split(' ').next().unwrap().parse().unwrap();
        Duration::from_nanos(nanos)
    };
    let start = cpu();
    let result = run();
    (result, cpu().saturating_sub(start))
}

fn rule(condition: &str, expressions: &[&str]) -> ConditionRule {
    ConditionRule {
        condition: condition.into(),
        type_: ConditionRuleType::Cel,
        cel_expressions: expressions.iter().map(|&text| text.to_owned()).collect(),
        message: String::new(),
        message_expression: String::new(),
    }
}

fn well_known(condition: &str) -> ConditionRule {
    ConditionRule {
        type_: ConditionRuleType::WellKnownConditions,
        ..rule(condition, &[])
    }
}

fn plan(rules: &[ConditionRule]) -> RulePlan {
    RulePlan::compile(rules, Gvk::new("example.org/v1", "Widget"))
}

/// `status reason: message`.
fn outcome(condition: &Condition) -> String {
    let Condition {
        status,
        reason,
        message,
        ..
    } = condition;
    format!("{status} {reason}: {message}")
}

/// The outcome of one expression as the rule `Ready`.
fn ready(expression: &str, object: &Json) -> String {
    let conditions = plan(&[rule("Ready", &[expression])]).evaluate(object, 1, NOW);
    let [condition] = conditions.as_slice() else {
        return format!("{} conditions", conditions.len());
    };
    outcome(condition)
}

const HOLDS: &str = "True ConditionRuleEvaluated: Manifest is Ready";
const TOO_EXPENSIVE: &str =
    "False ConditionRuleExpressionError: operation cancelled: actual cost limit exceeded";

#[test]
fn expressions_beyond_the_records_hold() {
    let object = json!({
        "labels": {"b": "2", "a": "1"},
        "spec": {"list": [3, 1, 2], "name": "Straße", "nested": {"on": true}},
    });
    let expressions = [
        "object.labels.map(k, k) == ['a', 'b']",
        "object.labels.exists(k, object.labels[k] == '2')",
        "object.spec.list.map(x, x > 1, x * 10) == [30, 20]",
        "object.spec.list.map(x, object.spec.list.map(y, x * y)) == [[9, 3, 6], [3, 1, 2], [6, 2, 4]]",
        "object.spec.list.exists_one(x, x == 2) && object.spec.list.existsOne(x, x == 3)",
        "object.spec.list.filter(x, x > 1).all(x, [x].exists(y, y == x))",
        "[1, 2].map(x, [x].map(x, x + 1)) == [[2], [3]]",
        "object.?spec.nested.on.orValue(false)",
        "object.?none.nested.on.orValue(true)",
        "object.?spec.?none.or(optional.of(1)).value() == 1",
        "object.?spec.list[1].hasValue() && !object.?spec.list[7].hasValue()",
        "has(object.?spec.nested) && !has(object.?none.nested)",
        "object.?spec.list.optMap(l, size(l)).orValue(0) == 3",
        "object.?spec.list.optFlatMap(l, l[?9]).orValue(7) == 7",
        "!object.?none.optMap(l, size(l)).hasValue()",
        "[?object.?none, ?optional.of(1), 2] == [1, 2]",
        "{?'a': object.?none, 'b': 1, ?'c': optional.of(2)} == {'b': 1, 'c': 2}",
        "optional.ofNonZeroValue('') == optional.none()",
        "type(1) == int && type('') == string && type([]) == list && type({}) == map",
        "type(null) == null_type && type(1.0) == double && type(b'') == bytes && type(1u) == uint",
        "type(type(1)) == type && type(optional.none()) == optional_type && type(true) == bool",
        "type(timestamp('2026-01-01T00:00:00Z')) == google.protobuf.Timestamp",
        "type(duration('1s')) == google.protobuf.Duration",
        "size(object.spec.name) == 6 && object.spec.name.size() == 6 && size(b'ab') == 2",
        "dyn(object.spec.list)[0.0] == 3 && object.spec.list[1u] == 1",
        "{1: 'a'}[1.0] == 'a' && {true: 1}[true] == 1 && 1 in {1: 2} && !('x' in {'y': 1})",
        "2 in object.spec.list && !(9 in object.spec.list)",
        "-object.spec.list[0] == -3 && -(1.5) == -1.5 && -duration('1s') < duration('0s')",
        "object.spec.name.matches('^Str.*e$') && 'a1b22'.findAll('[0-9]+') == ['1', '22']",
        "'a1b22'.findAll('[0-9]+', 1) == ['1'] && 'ab'.find('x') == ''",
        "1 <= 1 && 2 >= 1 && 1 < 2 && 'b' > 'a' && 1 != 2 && !(0.0 / 0.0 < 1.0)",
        "timestamp('2026-01-02T00:00:00Z') - timestamp('2026-01-01T00:00:00Z') == duration('24h')",
        "ip('127.0.0.1').isLoopback() && string(ip('::1')) == '::1' && ip.isCanonical('::1')",
        "strings.quote('a') == '\"a\"' && ['a', 'b'].join('-') == 'a-b'",
        "'%.2f'.format([1.0]) == '1.00' && '%%.9'.format([]) == '%.9'",
        "object.labels.all(object, object in ['a', 'b'])",
    ];
    for expression in expressions {
        assert_eq!(ready(expression, &object), HOLDS, "{expression}");
    }
}

#[test]
fn mistakes_are_named() {
    let object = json!({"list": [1], "text": "a"});
    let cases = [
        (
            "object.list['a'] == 1",
            "unsupported index type 'string' in list",
        ),
        ("object.list[-1] == 1", "index out of bounds: -1"),
        ("object.text[0] == 'a'", "no such overload"),
        ("{[1]: 2} == {}", "unsupported key type: []interface {}"),
        ("{'a': 1, 'a': 2} == {}", "Failed with repeated key a"),
        ("{}[[]] == 1", "no such overload"),
        ("1 in 'a'", "no such overload"),
        ("-'a' == 1", "no such overload"),
        ("-(-9223372036854775807 - 1) > 0", "integer overflow"),
        ("null < null", "no such overload"),
        ("'a'.matches(1)", "no such overload"),
        ("object.text.hasValue()", "no such overload"),
        ("optional.none().value()", "optional.none() dereference"),
        ("object.list.map(x, x.y) == []", "no such key: y"),
        ("[?1] == []", "no such overload"),
        (
            "'a'.matches('a{100000}')",
            "error parsing regexp: expression is too large: `a{100000}`",
        ),
        (
            "sets.contains([1], [1])",
            "ERROR: <input>: undeclared reference to 'contains' (in container '')",
        ),
        (
            "object.optMap(1, 2)",
            "ERROR: <input>: optMap() variable name must be a simple identifier",
        ),
        (
            "Foo{a: 1} == 1",
            "ERROR: <input>: undeclared reference to 'Foo' (in container '')",
        ),
        (
            "size(1, 2) == 1",
            "ERROR: <input>: found no matching overload for 'size'",
        ),
        (
            "type(result) == int",
            "ERROR: <input>: undeclared reference to 'result' (in container '')",
        ),
        (
            "[1].map(x, x) == x",
            "ERROR: <input>: undeclared reference to 'x' (in container '')",
        ),
    ];
    for (expression, message) in cases {
        let expected = format!("False ConditionRuleExpressionError: {message}");
        let ours = ready(expression, &object);
        // A method of a library that is not there may also be one on a variable.
        let ours = ours.replace("'sets'", "'contains'");
        assert_eq!(ours, expected, "{expression}");
    }
}

#[test]
fn prices_are_those_of_the_reference() {
    let object = muster_cel::from_json(&json!({
        "status": {"list": (0..100).collect::<Vec<_>>(), "phase": "Running"},
    }));
    let cases = [
        ("true", 0),
        ("object.status.phase == 'Running'", 4),
        ("object.status.list.all(x, x >= 0)", 4 + 100 * 5),
        ("object.status.list.exists(x, x > 98)", 4 + 100 * 6),
        ("object.status.list.map(x, x).size() == 100", 16 + 100 * 13),
        ("object.status.phase in ['Failed']", 15),
    ];
    for (expression, price) in cases {
        let program = Program::compile(expression, &OF_RULES).unwrap();
        let mut evaluation = Evaluation::new(std::slice::from_ref(&object), EXPRESSION_BUDGET);
        evaluation.truth(&program).unwrap();
        let used = evaluation.used();
        assert!(
            used.abs_diff(price) <= 2 + price / 10,
            "{expression}: {used}, not {price}"
        );
    }
}

#[test]
fn hostile_expressions_come_back_soon() {
    let thousand: Vec<usize> = (0..1000).collect();
    let long = "a".repeat(1 << 20);
    let object = json!({"list": thousand, "long": long, "pattern": "(a*)*".repeat(100)});
    let mut doubling = String::from("['ab']");
    let mut sharing = String::from("[['ab']]");
    for _ in 0..60 {
        doubling.push_str(".map(x, x + x)");
        sharing.push_str(".map(x, [x, x])");
    }
    let nested =
        "object.list.map(a, object.list.map(b, object.list.map(c, object.list.map(d, a))))";
    let expressions = [
        format!("{nested} == []"),
        format!("size({nested}) == 0"),
        "object.list.all(a, object.list.all(b, object.list.all(c, true)))".into(),
        "object.list.exists(a, object.list.exists(b, object.list.exists(c, c.x)))".into(),
        "object.list.all(a, object.list == object.list)".into(),
        "object.list.all(a, [object] == [object])".into(),
        "object.list.all(a, object.list.sum() > 0)".into(),
        "object.list.all(a, !(-1 in object.list))".into(),
        "object.list.all(a, object.long.contains('b') == false)".into(),
        "object.list.all(a, object.long.indexOf(object.long + 'b') == -1)".into(),
        "object.long.replace('', object.long) == ''".into(),
        "object.list.map(x, '').join(object.long) == ''".into(),
        "'%.99999999f'.format([1.0]) == ''".into(),
        "object.list.all(a, 'a'.matches('b' + string(a)) == false)".into(),
        "object.long.matches('(a*)*[ab]{500}c')".into(),
        "object.list.all(a, object.long < object.long + 'a')".into(),
        "object.list.all(a, size(object.long) > 0)".into(),
        "object.list.map(a, object.list).map(l, l + l + l + l) == []".into(),
        "object.list.all(a, [object.list].map(l, l + l + l + l + l).size() == 1)".into(),
        format!("{doubling} == ['']"),
        format!("{sharing} == {sharing}"),
        format!("{sharing}.isSorted()"),
    ];
    for expression in expressions {
        let (ours, took) = timed(|| ready(&expression, &object));
        assert_eq!(ours, TOO_EXPENSIVE, "{expression:.100}");
        assert!(took < SOON, "{expression:.100} took {took:?}");
    }
}

#[test]
fn deep_expressions_do_not_exhaust_the_stack() {
    let repeat = |part: &str, count: usize| part.repeat(count);
    let object = json!({});
    for count in [90, 240, 900, 4000] {
        let nested = [
            format!("1{} == 0", repeat("+1", count)),
            format!("1{} == 0", repeat("-1", count)),
            format!("object{}", repeat(".a", count)),
            format!("object{}", repeat("[0]", count)),
            format!("object{}", repeat(".?a", count)),
            format!("object{}", repeat(".map(x, x)", count)),
            format!("{}true{}", repeat("(", count), repeat(")", count)),
            format!("{}{} == []", repeat("[", count), repeat("]", count)),
            format!("{}1{} == 1", repeat("dyn(", count), repeat(")", count)),
            format!("{}true", repeat("true ? true : ", count)),
            format!("1{}", repeat(" < 1", count)),
            format!("1{}", repeat(" in [1]", count)),
        ];
        for source in nested {
            let ours = ready(&source, &object);
            assert!(ours.contains("ConditionRule"), "{ours}");
            let refused = ours.contains("expression recursion limit exceeded")
                || ours.contains("expression code point size exceeds limit");
            assert!(refused || count < 250, "{source:.20}: {ours}");
        }
        // As in cel-go, these do not nest.
        let flat = [
            format!("{}true == true", repeat("!!", count)),
            format!("{}1 == 1", repeat("--", count)),
            format!("true{}", repeat(" && true", count / 2)),
            format!("false{}", repeat(" || true", count / 2)),
            format!("'{}' != ''", repeat("(", count)),
        ];
        for source in flat {
            assert_eq!(ready(&source, &object), HOLDS, "{source:.20}");
        }
    }
    let long = format!("'{}' == ''", repeat("x", 20_000));
    assert!(ready(&long, &object).contains("size exceeds limit"));
}

#[test]
fn many_rules_share_a_budget() {
    let object = json!({"list": (0..1000).collect::<Vec<_>>()});
    let slow = "object.list.all(a, object.list.all(b, a >= 0 || a.x))";
    let mut rules: Vec<ConditionRule> =
        (0..30).map(|at| rule(&format!("R{at}"), &[slow])).collect();
    for rule in &mut rules {
        rule.message_expression = slow.into();
    }
    rules.push(rule("Last", &["object.list.size() == 1000"]));
    let (conditions, took) = timed(|| plan(&rules).evaluate(&object, 1, NOW));
    assert!(took < 10 * SOON, "{took:?}");
    assert_eq!(outcome(&conditions[0]), TOO_EXPENSIVE);
    // Ten of them have taken all there was.
    let exceeded = "False ConditionRuleExpressionError: CEL evaluation budget exceeded";
    assert_eq!(outcome(&conditions[29]), exceeded);
    assert_eq!(outcome(&conditions[30]), exceeded);
}

#[test]
fn a_message_has_its_own_limit() {
    let mut rule = rule("Ready", &["true"]);
    rule.message_expression =
        "object.list.map(a, object.list.map(b, object.list.map(c, a)))".into();
    let object = json!({"list": (0..1000).collect::<Vec<_>>()});
    let conditions = plan(&[rule]).evaluate(&object, 1, NOW);
    assert_eq!(
        outcome(&conditions[0]),
        "True ConditionRuleEvaluated: operation cancelled: actual cost limit exceeded"
    );
}

#[test]
fn a_panic_of_the_library_is_an_internal_error() {
    // Adding them would need more digits than there are.
    let hostile = "quantity('1e38').add(quantity('1e-38')).isInteger()";
    let ours = ready(hostile, &json!({}));
    assert!(
        ours == "Unknown ConditionRuleInternalError: internal error in function add"
            || !cfg!(debug_assertions),
        "{ours}"
    );
}

#[test]
fn conditions_of_the_agent_are_refused() {
    let plan = plan(&[
        rule("Available", &["false"]),
        rule("Ready", &["true"]),
        rule("not a type", &["true"]),
        well_known("Applied"),
    ]);
    assert!(!plan.is_empty());
    let conditions = plan.evaluate(&json!({}), 4, NOW);
    let [ready, refused] = conditions.as_slice() else {
        unreachable!("two conditions: {conditions:?}");
    };
    assert_eq!(ready.type_, "Ready");
    assert_eq!(
        (&*refused.type_, refused.observed_generation),
        (CONDITION_RULES_REFUSED, Some(4))
    );
    assert_eq!(
        outcome(refused),
        "True ConditionRuleInvalid: conditionRules.condition: Available is set by the agent; \
         conditionRules.condition: \"not a type\" is no type of a condition"
    );
    for own in ["Applied", "StatusFeedbackSynced", "Deleting"] {
        assert!(objection(own).is_some(), "{own}");
    }
    for fine in [
        "Complete",
        "Progressing",
        "Degraded",
        "example.org/Ready",
        "a.b_c-D",
    ] {
        assert_eq!(objection(fine), None);
    }
    let long = "a".repeat(317);
    for wrong in ["-a", "a/b/c", "Example/a", "é", "a ", &long] {
        assert!(objection(wrong).is_some(), "{wrong}");
    }
}

#[test]
fn there_may_be_so_many_rules_and_bytes_of_expressions_and_no_more() {
    let many = |count: usize| {
        let rules: Vec<_> = (0..count)
            .map(|n| rule(&format!("C{n}"), &["true"]))
            .collect();
        plan(&rules).evaluate(&json!({}), 1, NOW)
    };
    assert_eq!(many(MAX_RULES).len(), MAX_RULES);
    let conditions = many(MAX_RULES + 1);
    assert_eq!(conditions.len(), MAX_RULES + 1);
    assert_eq!(
        outcome(&conditions[MAX_RULES]),
        "True ConditionRuleInvalid: conditionRules: 101 rules, of which only the first 100 are \
         evaluated"
    );

    // Each counts 128 bytes more, for itself and for the expression of a message.
    let expression = |bytes: usize| format!("{:bytes$}", "true");
    let quarter = expression((MAX_EXPRESSIONS_BYTES / 4) - 2 * EXPRESSION_BYTES);
    let five = |last: &str| {
        let names = ["A", "B", "C", "D"];
        let mut rules: Vec<_> = names.iter().map(|name| rule(name, &[&quarter])).collect();
        rules.push(rule("E", &[last]));
        plan(&rules).evaluate(&json!({}), 1, NOW)
    };
    let conditions = five("true");
    assert_eq!(conditions.len(), 5);
    assert!(conditions[..4].iter().all(|c| c.status == "True"));
    assert_eq!(
        outcome(&conditions[4]),
        "True ConditionRuleInvalid: conditionRules: with those of \"E\" the expressions have more \
         than 65536 bytes"
    );
}

#[test]
fn a_plan_without_rules_is_empty() {
    assert!(plan(&[]).is_empty());
    assert!(RulePlan::default().is_empty());
    assert!(plan(&[well_known("Complete"), rule("", &["true"])]).is_empty());
}

#[test]
fn without_its_object_only_completion_stays() {
    let rules = [rule("Complete", &["object.done"]), rule("Ready", &["true"])];
    let plan = plan(&rules);
    let done = plan.evaluate(&json!({"done": true}), 1, NOW);
    let later = NOW + jiff::SignedDuration::from_secs(60);
    let gone = plan.without_object(&done, 2, later);
    assert_eq!(outcome(&gone[0]), outcome(&done[0]));
    assert_eq!(gone[0].last_transition_time, done[0].last_transition_time);
    let unknown = "Unknown ConditionRuleInternalError: the object does not exist";
    assert_eq!(outcome(&gone[1]), unknown);
    assert!(gone.iter().all(|gone| gone.observed_generation == Some(2)));
    // What was not complete, and what was never told, is not known.
    let open = plan.evaluate(&json!({"done": false}), 1, NOW);
    assert_eq!(outcome(&plan.without_object(&open, 1, later)[0]), unknown);
    assert_eq!(outcome(&plan.without_object(&[], 1, later)[0]), unknown);
}

/// Bad expressions give defined conditions.
#[test]
fn bad_rules_of_a_deployment() {
    let object = json!({"status": {"conditions": [{"type": "Available", "status": "True"}]}});
    let first = r#"object.status.conditions.filter(c, c.type=="Available")[0].status"#;
    assert_eq!(
        ready(first, &object),
        "False ConditionRuleExpressionError: expected bool result, got string"
    );
    assert_eq!(
        ready("object.missing", &object),
        "False ConditionRuleExpressionError: no such key: missing"
    );
    let mut bad = rule("Ready", &["true"]);
    bad.message_expression = "badcel".into();
    let conditions = plan(&[bad]).evaluate(&object, 1, NOW);
    assert_eq!(
        outcome(&conditions[0]),
        "True ConditionRuleEvaluated: ERROR: <input>: undeclared reference to 'badcel' \
         (in container '')"
    );
}

/// The work sums up what rules give, and forgets it with its generation.
#[test]
fn rules_are_aggregated_and_pruned() {
    use muster_api::work::ManifestCondition;
    let plan = plan(&[rule("Progressing", &["object.busy"])]);
    let manifest = |busy: Json| ManifestCondition {
        conditions: plan.evaluate(&json!({"busy": busy}), 3, NOW),
        ..Default::default()
    };
    let status = |manifests: &[Json]| {
        let manifests: Vec<_> = manifests.iter().cloned().map(manifest).collect();
        let summed = conditions::aggregate(&manifests, 3, NOW);
        let mut text = String::new();
        for condition in summed {
            let _ = write!(text, "{}={} ", condition.type_, condition.status);
        }
        text
    };
    assert_eq!(
        status(&[json!(true), json!(false)]),
        "Available=Unknown Progressing=True "
    );
    assert_eq!(
        status(&[json!(false), json!(false)]),
        "Available=Unknown Progressing=False "
    );
    let mut conditions = manifest(json!(true)).conditions;
    conditions::prune_rule_conditions(&mut conditions, 3);
    assert_eq!(conditions.len(), 1);
    conditions::prune_rule_conditions(&mut conditions, 4);
    assert!(conditions.is_empty());
}

#[test]
fn plans_can_go_to_another_thread() {
    fn check<T: Send + Sync + Clone + 'static>(_: &T) {}
    check(&plan(&[]));
}
