"""distfms in Python, one cell after the other, on data that scikit-learn ships.

Each of the four methods once, saving and loading, predictions at any time, and asking for
attributes one by one.
"""

# %% Data: 442 patients with ten baseline measurements, and how far their diabetes progressed.
import tempfile

import numpy as np
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits
from sklearn.model_selection import train_test_split

import distfms

patients = load_diabetes(as_frame=True, scaled=False)
X, X_test, y, y_test = train_test_split(patients.data, patients.target, random_state=0)

# %% In which order to take the measurements? Six blood values share a needle, the rest is nearly
# free. `sequence_` is the order; every prefix of it has a model.
blood = {f"s{k}": 5 for k in range(1, 7)}
sequencer = distfms.GroupSequencer(
    costs={**blood, "bp": 2, "default": 0.5},
    shared_costs={"needle": {"groups": list(blood), "cost": 10}},
).fit(X, y)
print(sequencer.sequence_)
print(f"R² of what it advises: {sequencer.score(X_test, y_test):.2f}")
print(sequencer.predict(X_test, budget=4)[:3], "for at most 4 a patient")

# %% A prediction at any time: hand over one group after the other, and stop when you must.
session = sequencer.anytime()
row = X_test.iloc[[0]]
while (group := session.next_group()) is not None and session.spent < 10:
    session.deliver(group, sequencer.group_values(group, row))
print(f"{session.prediction[0]:.0f} after {session.spent:g}, in truth {y_test.iloc[0]:.0f}")

# %% Save it as a run: with a report, and for `distfms predict`.
folder = tempfile.mkdtemp() + "/sequencer"
sequencer.save(folder)
again = distfms.load_estimator(folder)
print("the same again:", np.array_equal(again.predict(X_test), sequencer.predict(X_test)))

# %% How many judgments of each attribute to buy? Judgments here are pixels of 2 × 2 patches of
# images, drawn at random; the label is whether the digit is a one or a seven.
digits = load_digits()
images = digits.images[np.isin(digits.target, (1, 7))]
label = (digits.target[np.isin(digits.target, (1, 7))] == 7).astype(float)
patches = images.reshape(len(images), 4, 2, 4, 2).transpose(0, 1, 3, 2, 4).reshape(-1, 16, 4)
drawn = np.random.default_rng(0).integers(4, size=(len(images), 16, 4))
judgments = np.take_along_axis(patches, drawn, axis=2)
selector = distfms.FeatureMultiSelector(budget=40).fit(judgments[100:], label[100:])
print("judgments of each patch:", selector.repeats_)
print(f"loss {selector.holdout_loss(judgments[:100], label[:100]):.3f} of {label.var():.3f}")

# %% Which rows to compare new rows with?
tumours = load_breast_cancer(as_frame=True)
A, A_test, c, c_test = train_test_split(tumours.data, tumours.target, random_state=0)
classifier = distfms.LandmarkClassifier(landmarks=50).fit(A, c)
print(f"{100 * classifier.score(A_test, c_test):.1f}% correct by 50 landmarks")

# %% What to learn from three of ten measurements of each patient?
ridge = distfms.AttributeEfficientRidge(attributes_per_example=3).fit(X, y)
print(f"R² {ridge.score(X_test, y_test):.2f} from {ridge.attributes_seen_} values of {X.size}")

# %% The same, where each patient is asked: `ask` names attributes, `tell` brings their values.
learner = distfms.AttributeEfficientRidge(attributes_per_example=3).start(list(X.columns))
for i in range(60):
    questions = learner.ask()
    values = [[X.iloc[i, a] if a >= 0 else 0.0 for a in questions.attributes[0]]]
    learner.tell(values, y=[y.iloc[i]])
print("seen so far:", learner.attributes_seen_)
