//! Evaluating expressions within limits.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::sync::Arc;

use kube_cel::cel::Value;
use kube_cel::cel::objects::{Key, Map};

use crate::failure::Failure;
use crate::functions::{Function, Own, Patterns};
use crate::meter::Meter;
use crate::program::{Element, Loop, Node, Operator, Program};
use crate::value::{
    self, as_bool, as_optional, as_text, go_type, has_conditions, index, none, select, some,
    type_of,
};

type Outcome = Result<Value, Failure>;

/// Cost of a list that is written down.
const LIST: usize = 10;
/// Cost of a map that is written down.
const MAP: usize = 30;

/// The state of one evaluation.
#[derive(Debug)]
pub struct Evaluation<'a> {
    /// Values of the environment's variables.
    variables: &'a [Value],
    /// What loops have gathered, which can be an error that a later element makes good, and
    /// their elements.
    locals: Vec<Outcome>,
    meter: Meter,
    patterns: Patterns,
}

impl<'a> Evaluation<'a> {
    /// Begins an evaluation that may cost `limit`. The variables are those of the environment
    /// that the program was compiled in, in its order.
    pub fn new(variables: &'a [Value], limit: u64) -> Self {
        Self {
            variables,
            locals: Vec::new(),
            meter: Meter::new(limit),
            patterns: Patterns::default(),
        }
    }

    /// What has been spent.
    pub fn used(&self) -> u64 {
        self.meter.used()
    }

    /// The answer of a rule.
    ///
    /// # Errors
    ///
    /// Says why there is none.
    pub fn truth(&mut self, program: &Program) -> Result<bool, Failure> {
        let node = program.node();
        let value = self.eval(node)?;
        as_bool(&value).ok_or_else(|| {
            let got = go_type(&value, makes_its_value(node));
            Failure::Error(format!("expected bool result, got {got}"))
        })
    }

    /// The text of a message.
    ///
    /// # Errors
    ///
    /// Says why there is none.
    pub fn text(&mut self, program: &Program) -> Result<String, Failure> {
        let node = program.node();
        let value = self.eval(node)?;
        as_text(&value).map(str::to_owned).ok_or_else(|| {
            let got = go_type(&value, makes_its_value(node));
            Failure::Error(format!(
                "expected message expression to have a string result, got {got}"
            ))
        })
    }

    fn eval(&mut self, node: &Node) -> Outcome {
        match node {
            Node::Literal(value) => Ok(value.clone()),
            Node::Variable(at) => {
                self.meter.charge(1)?;
                self.variables
                    .get(*at)
                    .cloned()
                    .ok_or_else(|| Failure::Broken("variable".into()))
            }
            Node::Local(slot) => {
                self.meter.charge(1)?;
                self.locals[*slot].clone()
            }
            Node::Select(of, field, access) => {
                let of = self.eval(of)?;
                self.meter.charge(1)?;
                select(&of, field, *access)
            }
            Node::Index(of, access) => {
                let (of, at) = self.both(of)?;
                self.meter.charge(1)?;
                index(&of, &at, *access)
            }
            Node::Not(of) => {
                let of = self.eval(of)?;
                self.meter.charge(1)?;
                truth_of(&of).map(|of| Value::Bool(!of))
            }
            Node::NotFalse(of) => {
                self.meter.charge(1)?;
                match self.eval(of) {
                    Err(failure) if failure.is_final() => Err(failure),
                    outcome => Ok(Value::Bool(!matches!(outcome, Ok(Value::Bool(false))))),
                }
            }
            Node::Negate(of) => {
                let of = self.eval(of)?;
                self.meter.charge(1)?;
                negate(&of)
            }
            Node::And(of) => self.either_decides(of, false),
            Node::Or(of) => self.either_decides(of, true),
            Node::Choose(of) => {
                let [condition, then, otherwise] = of.as_ref();
                let holds = truth_of(&self.eval(condition)?)?;
                self.eval(if holds { then } else { otherwise })
            }
            Node::Binary(operator, of) => {
                let (a, b) = self.both(of)?;
                self.binary(*operator, a, b)
            }
            Node::List(elements) => self.list(elements),
            Node::Map(entries) => self.map(entries),
            Node::Loop(of) => {
                let outcome = self.run_loop(of);
                self.locals.truncate(of.slot);
                outcome
            }
            Node::Append(slot, node) => {
                self.meter.charge(LIST + 2)?;
                if let Err(failure) = &self.locals[*slot] {
                    return Err(failure.clone());
                }
                let added = self.eval(node)?;
                append(&mut self.locals[*slot], added)
            }
            Node::Own(own, arguments) => self.own(*own, arguments),
            Node::Call(function, arguments) => {
                let arguments: Vec<Value> = arguments
                    .iter()
                    .map(|argument| self.eval(argument))
                    .collect::<Result<_, _>>()?;
                match function {
                    Function::Library(call) => call.run(arguments, &mut self.meter),
                    Function::Own(_) => Err(Failure::no_such_overload()),
                }
            }
            Node::MapOptional(wrap, of, slot, outcome) => {
                let of = self.eval(of)?;
                self.meter.charge(1)?;
                let Some(inner) = expect_optional(&of)? else {
                    return Ok(none());
                };
                self.locals.push(Ok(inner.clone()));
                let outcome = self.eval(outcome);
                self.locals.truncate(*slot);
                outcome.map(|value| if *wrap { some(value) } else { value })
            }
        }
    }

    fn both(&mut self, of: &[Node; 2]) -> Result<(Value, Value), Failure> {
        Ok((self.eval(&of[0])?, self.eval(&of[1])?))
    }

    /// `||` and `&&`: one side that `decides` is enough, even if the other is an error.
    fn either_decides(&mut self, of: &[Node; 2], decides: bool) -> Outcome {
        let mut outcome = Ok(!decides);
        for side in of {
            match self.eval(side).and_then(|value| truth_of(&value)) {
                Ok(truth) if truth == decides => return Ok(Value::Bool(decides)),
                Ok(_) => {}
                Err(failure) if failure.is_final() => return Err(failure),
                Err(failure) => outcome = outcome.and(Err(failure)),
            }
        }
        outcome.map(Value::Bool)
    }

    fn binary(&mut self, operator: Operator, a: Value, b: Value) -> Outcome {
        self.meter.charge(1)?;
        match operator {
            Operator::Add => {
                match (&a, &b) {
                    (Value::List(a), Value::List(b)) => self.meter.charge(a.len() + b.len())?,
                    (Value::String(a), Value::String(b)) => {
                        self.meter.charge_bytes(a.len() + b.len())?;
                    }
                    _ => {}
                }
                Ok((a + b)?)
            }
            Operator::Subtract => Ok((a - b)?),
            Operator::Multiply => Ok((a * b)?),
            Operator::Divide => Ok((a / b)?),
            Operator::Modulo => Ok((a % b)?),
            Operator::Equal => self.equal(&a, &b).map(Value::Bool),
            Operator::NotEqual => self.equal(&a, &b).map(|equal| Value::Bool(!equal)),
            Operator::Less => self.compare(&a, &b, Ordering::is_lt),
            Operator::LessOrEqual => self.compare(&a, &b, Ordering::is_le),
            Operator::Greater => self.compare(&a, &b, Ordering::is_gt),
            Operator::GreaterOrEqual => self.compare(&a, &b, Ordering::is_ge),
            Operator::In => match &b {
                Value::List(items) => {
                    for item in items.iter() {
                        self.meter.charge(1)?;
                        if self.equal(&a, item)? {
                            return Ok(Value::Bool(true));
                        }
                    }
                    Ok(Value::Bool(false))
                }
                Value::Map(map) => {
                    let key: Result<Key, _> = a.try_into();
                    Ok(Value::Bool(key.is_ok_and(|key| map.get(&key).is_some())))
                }
                _ => Err(Failure::no_such_overload()),
            },
        }
    }

    fn equal(&mut self, a: &Value, b: &Value) -> Result<bool, Failure> {
        match (a, b) {
            (Value::List(x), Value::List(y)) if x.len() != y.len() => Ok(false),
            (Value::Map(x), Value::Map(y)) if x.map.len() != y.map.len() => Ok(false),
            (Value::List(_), Value::List(_))
            | (Value::Map(_), Value::Map(_))
            | (Value::String(_), Value::String(_))
            | (Value::Bytes(_), Value::Bytes(_))
            | (Value::Opaque(_), Value::Opaque(_)) => {
                self.meter.charge_visit(a)?;
                Ok(a == b)
            }
            _ => Ok(a == b),
        }
    }

    fn compare(&mut self, a: &Value, b: &Value, holds: fn(Ordering) -> bool) -> Outcome {
        if let (Value::String(a), Value::String(b)) = (a, b) {
            self.meter.charge_bytes(a.len().min(b.len()))?;
        }
        if matches!(a, Value::Null) {
            return Err(Failure::no_such_overload());
        }
        let nan = |value: &Value| matches!(value, Value::Float(float) if float.is_nan());
        match a.partial_cmp(b) {
            Some(ordering) => Ok(Value::Bool(holds(ordering))),
            None if nan(a) || nan(b) => Ok(Value::Bool(false)),
            None => Err(Failure::no_such_overload()),
        }
    }

    fn list(&mut self, elements: &[Element]) -> Outcome {
        self.meter.charge(LIST)?;
        let mut items = Vec::with_capacity(elements.len());
        for element in elements {
            items.extend(self.element(element)?);
        }
        Ok(items.into())
    }

    fn map(&mut self, entries: &[(Node, Element)]) -> Outcome {
        self.meter.charge(MAP)?;
        let mut map = HashMap::with_capacity(entries.len());
        for (key, element) in entries {
            let key = self.eval(key)?;
            let key: Key = key.try_into().map_err(|value| {
                Failure::Error(format!("unsupported key type: {}", go_type(&value, false)))
            })?;
            let Some(value) = self.element(element)? else {
                continue;
            };
            if map.insert(key.clone(), value).is_some() {
                return Err(Failure::Error(format!("Failed with repeated key {key}")));
            }
        }
        Ok(value::map(map))
    }

    fn element(&mut self, Element { node, optional }: &Element) -> Result<Option<Value>, Failure> {
        let value = self.eval(node)?;
        if !optional {
            return Ok(Some(value));
        }
        expect_optional(&value).map(Option::<&Value>::cloned)
    }

    fn run_loop(&mut self, of: &Loop) -> Outcome {
        let range = self.eval(&of.range)?;
        let start = self.eval(&of.start)?;
        self.locals.push(Ok(start));
        self.locals.push(Ok(Value::Null));
        match &range {
            Value::List(items) => self.iterate(of, items.iter().cloned())?,
            Value::Map(Map { map }) => {
                self.meter.charge(map.len())?;
                // In order, so that the same object gives the same message.
                let mut keys: Vec<&Key> = map.keys().collect();
                keys.sort_unstable();
                self.iterate(of, keys.into_iter().map(Value::from))?;
            }
            other => {
                return Err(Failure::Error(format!(
                    "got '{}', expected iterable type",
                    go_type(other, false)
                )));
            }
        }
        self.eval(&of.result)
    }

    fn iterate(&mut self, of: &Loop, items: impl Iterator<Item = Value>) -> Result<(), Failure> {
        for item in items {
            if !truth_of(&self.eval(&of.condition)?)? {
                break;
            }
            self.locals[of.slot + 1] = Ok(item);
            let gathered = self.eval(&of.step);
            if let Err(failure) = &gathered
                && failure.is_final()
            {
                return Err(failure.clone());
            }
            self.locals[of.slot] = gathered;
        }
        Ok(())
    }

    fn own(&mut self, own: Own, arguments: &[Node]) -> Outcome {
        let Some((first, others)) = arguments.split_first() else {
            self.meter.charge(1)?;
            return Ok(none()); // the only one without arguments
        };
        let first = self.eval(first)?;
        self.meter.charge(1)?;
        match own {
            Own::Dyn => Ok(first),
            Own::HasConditions => Ok(Value::Bool(has_conditions(&first))),
            Own::Size => self.size(&first),
            Own::Type => Ok(type_of(&first)),
            Own::OptionalNone => Ok(none()),
            Own::OptionalOfNonZero if first.is_zero() => Ok(none()),
            Own::OptionalOf | Own::OptionalOfNonZero => Ok(some(first)),
            Own::OptionalHasValue => Ok(Value::Bool(expect_optional(&first)?.is_some())),
            Own::OptionalValue => expect_optional(&first)?
                .cloned()
                .ok_or_else(|| Failure::Error("optional.none() dereference".into())),
            Own::OptionalOr | Own::OptionalOrValue => match (expect_optional(&first)?, others) {
                (Some(_), _) if own == Own::OptionalOr => Ok(first),
                (Some(inner), _) => Ok(inner.clone()),
                (None, [other]) => self.eval(other),
                (None, _) => Err(Failure::no_such_overload()),
            },
            Own::Matches | Own::Find | Own::FindAll => {
                let others: Vec<Value> = others
                    .iter()
                    .map(|other| self.eval(other))
                    .collect::<Result<_, _>>()?;
                self.search(own, &first, &others)
            }
        }
    }

    fn size(&mut self, of: &Value) -> Outcome {
        let size = match of {
            Value::String(text) => {
                self.meter.charge_bytes(text.len())?;
                text.chars().count()
            }
            Value::Bytes(bytes) => bytes.len(),
            Value::List(items) => items.len(),
            Value::Map(map) => map.map.len(),
            _ => return Err(Failure::Error("no such overload: size".into())),
        };
        Ok(Value::Int(i64::try_from(size).unwrap_or(i64::MAX)))
    }

    fn search(&mut self, own: Own, text: &Value, others: &[Value]) -> Outcome {
        let (text, pattern, most) = match (text, others) {
            (Value::String(text), [Value::String(pattern)]) => (text, pattern, usize::MAX),
            (Value::String(text), [Value::String(pattern), Value::Int(most)]) => {
                // Below zero means all, as in Go.
                let most = usize::try_from(*most).unwrap_or(usize::MAX);
                (text, pattern, most)
            }
            _ => return Err(Failure::no_such_overload()),
        };
        let regex = self.patterns.get(pattern, text, &mut self.meter)?;
        Ok(match own {
            Own::Matches => Value::Bool(regex.is_match(text)),
            Own::Find => regex.find(text).map_or("", |found| found.as_str()).into(),
            _ => {
                let mut all = Vec::new();
                for found in regex.find_iter(text).take(most) {
                    self.meter.charge(1)?;
                    all.push(Value::from(found.as_str()));
                }
                all.into()
            }
        })
    }
}

fn truth_of(value: &Value) -> Result<bool, Failure> {
    match value {
        Value::Bool(bool) => Ok(*bool),
        _ => Err(Failure::no_such_overload()),
    }
}

fn negate(value: &Value) -> Outcome {
    match value {
        Value::Int(int) => int
            .checked_neg()
            .map(Value::Int)
            .ok_or_else(|| Failure::Error("integer overflow".into())),
        Value::Float(float) => Ok(Value::Float(-float)),
        Value::Duration(duration) => Ok(Value::Duration(-*duration)),
        _ => Err(Failure::no_such_overload()),
    }
}

fn expect_optional(value: &Value) -> Result<Option<&Value>, Failure> {
    let optional = as_optional(value).ok_or_else(Failure::no_such_overload)?;
    Ok(optional.value())
}

/// Adds to a gathered list, which is taken out of its place and therefore not copied.
fn append(gathered: &mut Outcome, added: Value) -> Outcome {
    match std::mem::replace(gathered, Ok(Value::Null))? {
        Value::List(mut items) => {
            Arc::make_mut(&mut items).push(added);
            Ok(Value::List(items))
        }
        _ => Err(Failure::no_such_overload()),
    }
}

/// Whether a list or map that this gives is one of the expression, not of the object.
fn makes_its_value(node: &Node) -> bool {
    matches!(node, Node::List(_) | Node::Map(_) | Node::Loop(_))
}
