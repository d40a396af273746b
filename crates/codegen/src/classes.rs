//! All the classes of one schema, and resolving conflicts of their names.

use std::collections::{HashMap, HashSet};

use super::model::{ClassBody, ClassId, PythonClass, PythonType, ValueCheck};
use super::scope::{NameNumbering, NameScope};

/// Completes the fields once all classes of a module are known: which fields admit `null`, and that none has
/// the name of a class, because its value would replace the class in the annotations after it.
pub(super) fn settle_fields(sides: &mut [SchemaClasses]) {
    let names = sides.iter().flat_map(|classes| &classes.0).map(|class| class.name.clone());
    let names: HashSet<String> = names.collect();
    sides.iter_mut().for_each(|classes| classes.settle_fields(&names));
}

/// The classes of one schema, the first of which is the schema itself.
#[derive(Debug, Default)]
pub(super) struct SchemaClasses(pub(super) Vec<PythonClass>);

impl SchemaClasses {
    /// The class at `id`.
    pub(super) fn get(&self, id: ClassId) -> &PythonClass {
        &self.0[id.0]
    }

    /// Merges equal classes with the same preferred name, as datamodel-code-generator does.
    pub(super) fn join_equals(&mut self) {
        let mut latest: HashMap<&str, usize> = HashMap::new();
        let mut replaced: HashMap<ClassId, ClassId> = HashMap::new();
        for (position, class) in self.0.iter().enumerate().skip(1) {
            match latest.get(class.wanted.as_str()) {
                Some(&first) if self.0[first].body == class.body => {
                    replaced.insert(ClassId(position), ClassId(first));
                }
                _ => {
                    latest.insert(&class.wanted, position);
                }
            }
        }
        if replaced.is_empty() {
            return;
        }
        for id in replaced.keys() {
            self.0[id.0].body = ClassBody::Vacant;
        }
        let mut replace = |id: &mut ClassId| *id = replaced.get(id).copied().unwrap_or(*id);
        self.0.iter_mut().for_each(|class| class.body.for_each_class(&mut replace));
    }

    /// Makes these classes fit into one module with `others`: those that are the same are shared, and those that only
    /// have the same name get another.
    pub(super) fn stand_beside(&mut self, others: &SchemaClasses) {
        let by_name: HashMap<&str, usize> =
            others.0.iter().enumerate().map(|(position, class)| (class.name.as_str(), position)).collect();
        let counterpart =
            |class: &PythonClass| by_name.get(class.name.as_str()).map(|position| ClassId(*position));
        let mut shared: HashMap<ClassId, ClassId> = self
            .0
            .iter()
            .enumerate()
            .skip(1)
            .filter_map(|(position, class)| Some((ClassId(position), counterpart(class)?)))
            .collect();
        // A class is the same if it says the same and all that it names is the same: what is not is dropped until all
        // that is left agrees.
        loop {
            let before = shared.len();
            let same: HashSet<ClassId> = shared
                .iter()
                .filter(|(own, other)| {
                    let own = self.get(**own);
                    own.description == others.get(**other).description
                        && own.body.translated(&shared).as_ref() == Some(&others.get(**other).body)
                })
                .map(|(own, _)| *own)
                .collect();
            shared.retain(|own, _| same.contains(own));
            if shared.len() == before {
                break;
            }
        }
        let mut scope = NameScope::with(self.0.iter().chain(&others.0).map(|class| class.name.clone()));
        for (position, class) in self.0.iter_mut().enumerate().filter(|(_, class)| !class.is_duplicate) {
            class.is_duplicate = shared.contains_key(&ClassId(position));
            if !class.is_duplicate && by_name.contains_key(class.name.as_str()) {
                class.name = scope.take(format!("Result{}", class.name), NameNumbering::Joined);
            }
        }
    }

    fn settle_fields(&mut self, names: &HashSet<String>) {
        for position in 0..self.0.len() {
            let ClassBody::Model(model) = &self.0[position].body else { continue };
            let nullable: Vec<bool> = model.fields.iter().map(|field| self.admits_null(&field.ty)).collect();
            let ClassBody::Model(model) = &mut self.0[position].body else { continue };
            let clashes = model.fields.iter().any(|field| names.contains(&field.name));
            let all = names.iter().chain(model.fields.iter().map(|field| &field.name));
            let mut scope = if clashes { NameScope::with(all) } else { NameScope::default() };
            for (field, is_nullable) in model.fields.iter_mut().zip(nullable) {
                field.is_nullable = is_nullable;
                if names.contains(&field.name) {
                    field.name = scope.take(field.name.clone(), NameNumbering::Underscore);
                }
            }
        }
    }

    /// Whether the value of the schema itself may be `null`.
    pub(super) fn is_nullable(&self) -> bool {
        self.0.first().is_some_and(|class| match &class.body {
            ClassBody::Root(ty) => self.admits_null(ty),
            _ => class.is_nullable,
        })
    }

    /// Whether a value of type `ty` may be `null`.
    fn admits_null(&self, ty: &PythonType) -> bool {
        self.admits_null_besides(ty, &mut HashSet::new())
    }

    /// [`Self::admits_null`], where the classes in `seen` have been asked already: named types may lead to each other.
    fn admits_null_besides(&self, ty: &PythonType, seen: &mut HashSet<ClassId>) -> bool {
        match ty {
            PythonType::Any | PythonType::Null => true,
            PythonType::Union(members) | PythonType::Tagged { members, .. } => {
                members.iter().any(|member| self.admits_null_besides(member, seen))
            }
            PythonType::Checked(inner, checks) => {
                self.admits_null_besides(inner, seen) && !checks.iter().any(ValueCheck::refuses_null)
            }
            PythonType::Class(id) => match &self.get(*id).body {
                ClassBody::Root(inner) => seen.insert(*id) && self.admits_null_besides(inner, seen),
                _ => false,
            },
            _ => false,
        }
    }
}
