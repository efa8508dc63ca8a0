use super::*;
use crate::schema::compile;
use serde_json::json;

fn check(rules: &Json, object: &Json, old: Option<&Json>) -> Vec<String> {
    let schema = json!({"type": "object", "properties": {"spec": {
        "type": "object", "x-kubernetes-validations": rules,
        "properties": {"a": {"type": "integer"}, "b": {"type": "string"}},
    }}});
    let mut errors = Vec::new();
    let schema = compile(&schema).unwrap();
    let rules = schema.rules.as_ref().unwrap();
    rules.validate(&schema, object, old, &mut errors);
    errors.iter().map(ToString::to_string).collect()
}

#[test]
fn rules_refuse_by_field_with_their_message() {
    let rules = json!([{"rule": "self.a <= 2", "message": "too many"}]);
    assert_eq!(
        check(&rules, &json!({"spec": {"a": 3}}), None),
        ["spec: Invalid value: too many"]
    );
    assert_eq!(check(&rules, &json!({"spec": {"a": 2}}), None), [""; 0]);
}

/// As kube-apiserver has it: a value with fields or items is left out, also where the rule names
/// one of them.
#[test]
fn a_plain_value_that_is_refused_is_told() {
    let of = |rule: &str| json!([{"rule": rule, "message": "no"}]);
    let schema = json!({"type": "object", "properties": {
        "list": {"type": "array", "items":
            {"type": "string", "x-kubernetes-validations": of("self != 'x'")}},
        "map": {"type": "object", "additionalProperties":
            {"type": "integer", "x-kubernetes-validations": of("self < 7")}},
        "named": {"type": "object",
            "properties": {"a": {"type": "integer"}},
            "x-kubernetes-validations":
                [{"rule": "self.a < 8", "message": "no", "fieldPath": ".a"}]},
    }});
    let schema = compile(&schema).unwrap();
    let rules = schema.rules.as_ref().unwrap();
    let object = json!({"list": ["y", "x"], "map": {"k": 7}, "named": {"a": 8}});
    let mut errors = Vec::new();
    rules.validate(&schema, &object, None, &mut errors);
    let mut errors: Vec<String> = errors.iter().map(ToString::to_string).collect();
    errors.sort();
    let expected = [
        "list[1]: Invalid value: \"x\": no",
        "map[k]: Invalid value: 7: no",
        "named.a: Invalid value: no",
    ];
    assert_eq!(errors, expected);
}

#[test]
fn transition_rules_need_an_old_object() {
    let rules = json!([{"rule": "self.b == oldSelf.b", "message": "fixed"}]);
    let object = json!({"spec": {"b": "x"}});
    assert_eq!(check(&rules, &object, None), [""; 0]);
    let old = json!({"spec": {"b": "y"}});
    assert_eq!(
        check(&rules, &object, Some(&old)),
        ["spec: Invalid value: fixed"]
    );
}

#[test]
fn rules_that_do_not_parse_are_refused_with_the_schema() {
    let document = spec("self.a <=", json!({"a": {"type": "integer"}}));
    let [problem] = &problems(&document, "s")[..] else {
        panic!("one problem");
    };
    assert_eq!(
        problem.field,
        "s.properties[spec].x-kubernetes-validations[0].rule"
    );
    let start = r#"Invalid value: {"Rule":"self.a \u003c=","Message":"","MessageExpression":"","Reason":null,"FieldPath":"","OptionalOldSelf":null}: compilation failed: ERROR: <input>:1:10: Syntax error"#;
    assert!(problem.message.starts_with(start), "{}", problem.message);
    assert!(Rules::compile(&json!({"type": "object"})).is_none());
}

/// A schema with one rule at `spec`.
#[allow(clippy::needless_pass_by_value, reason = "reads best")]
fn spec(rule: &str, properties: Json) -> Json {
    json!({"type": "object", "properties": {"spec": {
        "type": "object", "properties": properties,
        "x-kubernetes-validations": [{"rule": rule}],
    }}})
}

/// The errors of an object's `spec`, and what they cost.
fn outcome(document: &Json, object: &Json, old: Option<&Json>) -> (Vec<String>, u64) {
    let schema = compile(document).unwrap();
    let rules = schema.rules.as_ref().unwrap();
    let mut errors = Vec::new();
    let cost = rules.validate_within(OBJECT_BUDGET, &schema, object, old, &mut errors);
    (errors.iter().map(ToString::to_string).collect(), cost)
}

/// All read off kube-apiserver 1.36: by how much the estimate exceeds the limit, if it does.
#[test]
#[allow(clippy::too_many_lines, reason = "a table")]
fn estimates_are_those_of_the_reference() {
    let list = |items: Json| json!({"l": {"type": "array", "items": items}});
    let texts = list(json!({"type": "string"}));
    let objects = list(json!({"type": "object", "required": ["a"],
        "properties": {"a": {"type": "string"}, "b": {"type": "string"}}}));
    let map = json!({"m": {"type": "object", "additionalProperties": {"type": "string"}}});
    let mut few = objects.clone();
    few["e"] = json!({"type": "array", "maxItems": 20, "items": {"type": "string"}});
    let numbers = list(json!({"type": "integer"}));
    let most = |items: Json| json!({"type": "array", "maxItems": 2_500_000, "items": items});
    let many = json!({
        "n": most(json!({"type": "integer"})),
        "t": most(json!({"type": "string"})),
        "o": most(json!({"type": "object", "properties": {"b": {"type": "string"}}})),
    });
    let more = Some("more than 100x");
    let cases = [
        ("self.m.all(k, self.m[k] == k)", map.clone(), None),
        ("self.m.all(k, self.m[k].size() == 3)", map, None),
        (
            "self.l.filter(x, x.a == 'q').map(x, x.b).exists(y, y == 'z')",
            objects.clone(),
            Some("1.101004x"),
        ),
        (
            "self.l.exists_one(x, x.a == 'b' && x.b in self.e)",
            few,
            None,
        ),
        (
            "(self.l + self.l).join(',').contains('abc')",
            list(json!({"type": "string", "maxLength": 10})),
            more,
        ),
        (
            "sets.contains(self.l, self.l)",
            json!({"l": {"type": "array", "maxItems": 10_000,
                "items": {"type": "string", "maxLength": 10}}}),
            Some("10.0x"),
        ),
        (
            "self.l.all(x, x.matches('^[a-z]+$') && x.startsWith('ab') && x.find('a') == 'b')",
            texts.clone(),
            more,
        ),
        (
            "self.l.all(x, string(x) == 'a' || x == 1)",
            list(json!({"x-kubernetes-int-or-string": true})),
            more,
        ),
        (
            "self.l.all(x, x > timestamp('2020-01-01T00:00:00Z'))",
            list(json!({"type": "string", "format": "date-time"})),
            None,
        ),
        (
            "self.l.map(x, x + x + x).all(y, y == 'a')",
            list(json!({"type": "string", "maxLength": 1000})),
            more,
        ),
        (
            "self.?o.a.orValue('x') == 'y' && self.?o.optMap(p, p.a).orValue('') == ''",
            json!({"o": {"type": "object", "properties": {"a": {"type": "string"}}}}),
            None,
        ),
        (
            "self.l.all(x, quantity(x).isGreaterThan(quantity('1')) && url(x).getHost() == 'a')",
            texts.clone(),
            more,
        ),
        (
            "self.l.all(x, x in ['a','b'] ? x.upperAscii() == 'A' : x.substring(1, 2) == 'b')",
            texts,
            more,
        ),
        (
            "self.l.sum() > 1 && self.l.isSorted() && self.l.indexOf(1) > 2 && self.l.max() > 3",
            numbers.clone(),
            None,
        ),
        (
            "self.l.all(x, self.l.all(y, self.l.all(z, x+y+z >= 0)))",
            numbers,
            more,
        ),
        ("self.n.all(x, x == 1)", many.clone(), Some("1.000000x")),
        ("self.n.exists(x, !true)", many.clone(), Some("1.250000x")),
        ("self.n.exists_one(x, true)", many.clone(), None),
        ("self.n.map(x, 1) == []", many.clone(), Some("3.0x")),
        ("self.n.filter(x, true) == []", many.clone(), Some("3.3x")),
        ("self.t.all(x, x == 'z')", many.clone(), Some("1.250000x")),
        (
            "self.o.map(x, x.b).all(y, y == 'z')",
            many.clone(),
            Some("4.5x"),
        ),
        ("self.o.map(x, x.b).all(y, y == y)", many, Some("4.8x")),
    ];
    for (rule, properties, factor) in cases {
        let found = problems(&spec(rule, properties), "s");
        let first = found.first().map(|problem| problem.message.as_str());
        let expected = factor.map(|factor| {
            format!(
                "Forbidden: estimated rule cost exceeds budget by factor of {factor} (try simplifying the rule, or adding maxItems, maxProperties, and maxLength where arrays, maps, and strings are declared)"
            )
        });
        assert_eq!(first, expected.as_deref(), "{rule}");
    }
}

#[test]
fn how_often_a_rule_can_be_evaluated_counts() {
    let rule = json!([{"rule": "self.matches('^a+$')"}]);
    let of = |list: Json| json!({"type": "object", "properties": {"l": list}});
    let items = json!({"type": "string", "x-kubernetes-validations": rule});
    let mut short = items.clone();
    short["maxLength"] = json!(253);
    let unbounded = of(json!({"type": "array", "items": items}));
    let fields: Vec<String> = problems(&unbounded, "s")
        .into_iter()
        .map(|e| e.field)
        .collect();
    let path = "s.properties[l].items.x-kubernetes-validations[0].rule";
    assert_eq!(fields, [path, path, "s"]);
    let bounded = of(json!({"type": "array", "maxItems": 1000, "items": short}));
    assert_eq!(problems(&bounded, "s"), []);
}

#[test]
fn rules_below_alternatives_are_refused() {
    let document = json!({"type": "object", "anyOf": [{"properties": {"a": {
        "x-kubernetes-validations": [{"rule": "true"}]}}}]});
    let [problem] = &problems(&document, "s")[..] else {
        panic!("one problem");
    };
    assert_eq!(problem.message, "Forbidden: must be empty to be structural");
}

#[test]
fn texts_of_rules_are_bounded_alone_and_together() {
    let long = format!("'{}' != ''", "x".repeat(MAX_RULE_CHARACTERS));
    let deep = format!("1{} > 0", "+1".repeat(8000));
    let many = format!("'{}' != ''", "x".repeat(90_000));
    for (rules, why) in [
        (vec![long], "expression code point size exceeds limit"),
        (vec![deep], "expression recursion limit exceeded: 250"),
        (
            vec![many; 6],
            "the rules of a schema may have 524288 bytes together",
        ),
    ] {
        let rules: Vec<Json> = rules.iter().map(|rule| json!({"rule": rule})).collect();
        let document = json!({"type": "object", "x-kubernetes-validations": rules});
        let found = problems(&document, "s");
        let [problem] = &found[..] else {
            panic!("{} problems", found.len());
        };
        assert!(problem.message.contains(why), "{why}");
        // Where it has been stored by another release, it refuses objects and nothing else.
        let (errors, _) = outcome(&document, &json!({}), None);
        assert_eq!(errors.len(), 1);
        assert!(errors[0].contains("rule compile error") && errors[0].contains(why));
    }
}

#[test]
fn an_evaluation_that_costs_too_much_is_cut_off() {
    let numbers = json!({"l": {"type": "array", "items": {"type": "integer"}}});
    let cases = [
        "self.l.all(x, self.l.all(y, self.l.all(z, x+y+z >= 0)))",
        "self.l.map(x, self.l.map(y, x + y)).size() >= 0",
    ];
    let object = json!({"spec": {"l": (0..20_000).collect::<Vec<_>>()}});
    for rule in cases {
        let mut document = spec(rule, numbers.clone());
        // None is evaluated after it.
        document["properties"]["spec"]["x-kubernetes-validations"] =
            json!([{"rule": rule}, {"rule": "false"}]);
        let (errors, cost) = outcome(&document, &object, None);
        let expected = format!(
            "spec: Invalid value: \"object\": 'operation cancelled: actual cost limit exceeded': no further validation rules will be run due to call cost exceeds limit for rule: {rule}"
        );
        assert_eq!(errors, [expected]);
        assert!(cost < 2 * CALL_BUDGET, "{cost}");
    }
}

#[test]
fn all_evaluations_of_an_object_share_a_budget() {
    let rule = json!([{"rule": "self.all(x, x >= 0)"}]);
    let document = json!({"type": "object", "properties": {"l": {"type": "array", "items": {
        "type": "array", "items": {"type": "integer"}, "x-kubernetes-validations": rule}}}});
    let object = json!({"l": vec![(0..1000).collect::<Vec<_>>(); 3000]});
    let (errors, cost) = outcome(&document, &object, None);
    assert_eq!(cost, OBJECT_BUDGET);
    let [error] = &errors[..] else {
        panic!("{} errors", errors.len());
    };
    assert!(
        error.ends_with(
            "Invalid value: \"array\": validation failed due to running out of cost budget, no further validation rules will be run"
        ),
        "{error}"
    );
}

#[test]
fn errors_about_one_object_are_counted() {
    let rule = json!([{"rule": "false"}]);
    let document = json!({"type": "object", "properties": {"l": {"type": "array", "items": {
        "type": "integer", "x-kubernetes-validations": rule}}}});
    let object = json!({"l": vec![1; 10_000]});
    assert_eq!(outcome(&document, &object, None).0.len(), MAX_ERRORS);
}

/// Read off kube-apiserver 1.36.
#[test]
fn values_have_the_types_of_their_schema() {
    let of = |rule: &str| json!([{"rule": rule, "message": "no"}]);
    let property = |kind: &str, format: &str, rule: &str| {
        let mut property = json!({"type": kind, "x-kubernetes-validations": of(rule)});
        if !format.is_empty() {
            property["format"] = json!(format);
        }
        property
    };
    let document = json!({"type": "object", "properties": {
        "num": property("number", "", "self + 1.0 < 3.0"),
        "time": property("string", "date-time", "self.getFullYear() > 2000"),
        "duration": property("string", "duration", "self < duration('1h')"),
        "bytes": property("string", "byte", "self.size() < 3"),
        "names": {"type": "object",
            "properties": {"u_s": {"type": "integer"}, "x-y": {"type": "integer"},
                "in": {"type": "integer"}, "a__b": {"type": "integer"}},
            "x-kubernetes-validations": of("self.u_s + self.x__dash__y + self.__in__ + self.a__underscores__b < 5")},
    }});
    let good = json!({"num": 1, "time": "2026-01-01T00:00:00Z", "duration": "59m", "bytes": "YWI=",
        "names": {"u_s": 1, "x-y": 1, "in": 1, "a__b": 1}});
    assert_eq!(outcome(&document, &good, None).0, [""; 0]);
    let bad = json!({"num": 2, "time": "1999-01-01T00:00:00Z", "duration": "2h", "bytes": "YWJjZA==",
        "names": {"u_s": 2, "x-y": 1, "in": 1, "a__b": 1}});
    let expected = [
        "bytes: Invalid value: \"YWJjZA==\": no",
        "duration: Invalid value: \"2h\": no",
        "names: Invalid value: no",
        "num: Invalid value: 2: no",
        "time: Invalid value: \"1999-01-01T00:00:00Z\": no",
    ];
    let mut errors = outcome(&document, &bad, None).0;
    errors.sort();
    assert_eq!(errors, expected);
}

/// Read off kube-apiserver 1.36.
#[test]
fn failures_and_messages_are_told_in_the_words_of_the_reference() {
    let document = json!({"type": "object", "properties": {"me": {"type": "integer",
    "x-kubernetes-validations": [
        {"rule": "self < 3", "messageExpression": "'is %d'.format([self])"},
        {"rule": "self.x == 1", "message": "given"},
        {"rule": "{'a': 1}.b == 1"},
    ]}}});
    let expected = [
        "me: Invalid value: 4: is 4",
        "me: Invalid value: \"integer\": no such key: x evaluating rule: given",
        "me: Invalid value: \"integer\": no such key: b evaluating rule: {'a': 1}.b == 1",
    ];
    assert_eq!(outcome(&document, &json!({"me": 4}), None).0, expected);
}

/// Items of a list with keys are found in another place, those of other lists have no past.
#[test]
fn transitions_are_followed_by_key() {
    let items = json!({"type": "object",
        "properties": {"n": {"type": "string"}, "v": {"type": "integer"}},
        "x-kubernetes-validations": [{"rule": "self.v == oldSelf.v", "message": "no"}]});
    let list = |kind: &str| {
        json!({"type": "array", "items": items,
        "x-kubernetes-list-type": kind, "x-kubernetes-list-map-keys": ["n"]})
    };
    let document = json!({"type": "object", "properties": {"m": list("map"), "a": list("atomic"),
        "o": {"type": "object", "x-kubernetes-validations": [{
            "rule": "!oldSelf.hasValue() || oldSelf.value().a == self.a",
            "optionalOldSelf": true, "message": "fixed"}],
            "properties": {"a": {"type": "integer"}}}}});
    let before = json!([{"n": "x", "v": 1}, {"n": "y", "v": 2}]);
    let after = json!([{"n": "y", "v": 2}, {"n": "z", "v": 5}, {"n": "x", "v": 3}]);
    let old = json!({"m": before, "a": before, "o": {"a": 1}});
    let new = json!({"m": after, "a": after, "o": {"a": 2}});
    let expected = ["m[2]: Invalid value: no", "o: Invalid value: fixed"];
    assert_eq!(outcome(&document, &new, Some(&old)).0, expected);
    assert_eq!(outcome(&document, &new, None).0, [""; 0]);
}
