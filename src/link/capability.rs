//! Compute capability as the sources see it: what `get_device_capability()` and its relatives give on an assumed
//! architecture.

use super::names::Place;
use super::{Const, Linker, ModId, Resolution, Value};
use crate::packs::CapabilityTest;
use crate::python::Symbol;
use crate::python::ir::{BindingKind, Call, ExprId, ExprKind};

impl Linker<'_> {
    /// The constant that a call about the device gives on the assumed architecture.
    pub(super) fn device_constant(&self, id: ModId, call: &Call) -> Option<Const> {
        let (major, minor) = self.architecture()?;
        let module = self.module(id);
        let name = match module[call.callee].kind {
            ExprKind::Name(name) | ExprKind::Attribute(_, name) => name,
            _ => return None,
        };
        let capability = || Const::Tuple(vec![Const::Int(major), Const::Int(minor)]);
        let asked = || match self.constant(id, call.arguments.first()?.value)? {
            Const::Int(value) => Some((value / 10, Some(value % 10))),
            Const::Tuple(items) => match items[..] {
                [Const::Int(major), Const::Int(minor)] => Some((major, Some(minor))),
                [Const::Int(major)] => Some((major, None)),
                _ => None,
            },
            _ => None,
        };
        // torch's own function, or a platform object's method of that name, whatever it is called on.
        let questions = &self.program.packs.capability;
        if questions.tuple.iter().any(|path| path.rsplit('.').next() == Some(name.as_str())) {
            return Some(capability());
        }
        if let Some(test) = questions.predicates.get(name.as_str()) {
            let (asked_major, asked_minor) = asked()?;
            return Some(Const::Bool(match test {
                CapabilityTest::AtLeast => (major, minor) >= (asked_major, asked_minor.unwrap_or(0)),
                CapabilityTest::Equal => major == asked_major && asked_minor.is_none_or(|asked| asked == minor),
                CapabilityTest::SameMajor => major == asked_major,
            }));
        }
        if &name != "to_int" {
            return None;
        }
        match self.constant(id, self.object_of(id, call.callee)?)? {
            Const::Tuple(items) if items == [Const::Int(major), Const::Int(minor)] => {
                Some(Const::Int(major * 10 + minor))
            }
            _ => None,
        }
    }

    fn object_of(&self, id: ModId, callee: ExprId) -> Option<ExprId> {
        match self.module(id)[callee].kind {
            ExprKind::Attribute(object, _) => Some(object),
            _ => None,
        }
    }

    /// `.major` and `.minor` of the capability, and of what `get_device_properties` gives.
    pub(super) fn device_attribute(&self, id: ModId, object: ExprId, attr: Symbol) -> Option<Const> {
        let (major, minor) = self.architecture()?;
        let wanted = match attr.as_str() {
            "major" => major,
            "minor" => minor,
            _ => return None,
        };
        let module = self.module(id);
        if let ExprKind::Call(call) = &module[object].kind
            && let ExprKind::Attribute(_, name) = module[call.callee].kind
            && &name == "get_device_properties"
        {
            return Some(Const::Int(wanted));
        }
        match self.constant(id, object)? {
            Const::Tuple(items) if items == [Const::Int(major), Const::Int(minor)] => Some(Const::Int(wanted)),
            _ => None,
        }
    }

    /// A local or module-level name that holds the capability, or something computed from it.
    pub(super) fn device_name(&self, id: ModId, name: Symbol, place: Place) -> Option<Const> {
        self.architecture()?;
        let module = self.module(id);
        let scope = self.binding_scope(module, place.scope, name)?;
        let mut answer: Option<Const> = None;
        for binding in self.candidates(id, scope, name, Some(place)) {
            let value = match module[binding].kind {
                BindingKind::Value(value) => self.constant(id, value),
                BindingKind::Element { value, index } => match self.constant(id, value)? {
                    Const::Tuple(items) => items.get(index as usize).cloned(),
                    _ => None,
                },
                // A parameter that is by its name and type the device's capability.
                BindingKind::Parameter(function, index) => {
                    let parameter = module[function].parameters[index as usize];
                    let typed = parameter
                        .annotation
                        .is_some_and(|annotation| module.slice(module[annotation].span).contains("DeviceCapability"));
                    let (major, minor) = self.architecture()?;
                    typed.then(|| Const::Tuple(vec![Const::Int(major), Const::Int(minor)]))
                }
                _ => None,
            }?;
            if answer.get_or_insert_with(|| value.clone()) != &value {
                return None;
            }
        }
        answer
    }

    /// `DeviceCapability(9, 0)`: a named tuple built from constants.
    pub(super) fn tuple_constant(&self, id: ModId, call: &Call) -> Option<Const> {
        self.architecture()?;
        let resolved = self.eval(id, call.callee);
        let is_tuple = match &resolved {
            Resolution::Found(values) => {
                matches!(values[..], [Value::Class(class)] if self.is_named_tuple(class))
            }
            _ => false,
        };
        if !is_tuple {
            return None;
        }
        call.arguments
            .iter()
            .map(|argument| self.constant(id, argument.value))
            .collect::<Option<Vec<_>>>()
            .map(Const::Tuple)
    }
}
