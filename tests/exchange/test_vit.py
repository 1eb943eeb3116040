"""The Vision Transformer both ways."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from transformers import ViTConfig, ViTForImageClassification, ViTImageProcessor

from saccade import api
from saccade.errors import SaccadeError
from saccade.exchange.huggingface import export_run, import_folder
from saccade.modality.image import to_tensor
from tests.exchange import published

SMALL = {"hidden_size": 21, "num_attention_heads": 3, "num_hidden_layers": 2, "intermediate_size": 33}
SMALL |= {"image_size": 12, "patch_size": 4, "id2label": {0: "cat", 1: "dog", 2: "cow"}}


def folder(place: Path, **settings: object) -> Path:
    return published.save(ViTForImageClassification(ViTConfig(**{**SMALL, **settings})), place / "theirs")


@pytest.mark.parametrize(
    "settings",
    [{}, {"num_hidden_layers": 1, "patch_size": 3, "layer_norm_eps": 1e-2}, {"num_hidden_layers": 3, "patch_size": 6}],
)
def test_images_are_seen_as_theirs_sees_them(settings: dict, tmp_path: Path) -> None:
    theirs = folder(tmp_path, **settings)
    import_folder(theirs, tmp_path / "run")
    images = torch.randn(2, 3, 12, 12, generator=torch.Generator().manual_seed(3))
    with torch.no_grad():
        expected = ViTForImageClassification.from_pretrained(theirs).eval()(images).logits
        assert (api.load(tmp_path / "run").model(images) - expected).abs().max() < 1e-5
    export_run(tmp_path / "run", tmp_path / "ours")
    published.require_same_files(theirs, tmp_path / "ours")


def test_a_picture_file_gets_the_label_that_theirs_gives_it(tmp_path: Path) -> None:
    theirs = folder(tmp_path)
    import_folder(theirs, tmp_path / "run")
    pixels = np.random.default_rng(1).integers(0, 256, (12, 12, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(tmp_path / "picture.png")
    given = ViTImageProcessor(size={"height": 12, "width": 12})(Image.fromarray(pixels), return_tensors="pt")
    with torch.no_grad():
        share = ViTForImageClassification.from_pretrained(theirs).eval()(**given).logits.softmax(-1)[0]
    predictor = api.load(tmp_path / "run")
    answer = predictor.predict([str(tmp_path / "picture.png")])[0].answers[0]
    assert answer.text == SMALL["id2label"][int(share.argmax())]
    assert abs(answer.score - float(share.max())) < 1e-5
    assert predictor.look(str(tmp_path / "picture.png"))


@pytest.mark.parametrize(
    "settings", [{"image_mean": [0.4, 0.5, 0.6], "image_std": [0.2, 0.3, 0.4]}, {"do_normalize": False}]
)
def test_pictures_with_another_middle_are_seen_as_theirs_sees_them(settings: dict, tmp_path: Path) -> None:
    theirs = folder(tmp_path, hidden_act="gelu_new")
    processor = ViTImageProcessor(size={"height": 12, "width": 12}, **settings)
    processor.save_pretrained(theirs)
    import_folder(theirs, tmp_path / "run")
    pixels = np.random.default_rng(1).integers(0, 256, (2, 12, 12, 3), dtype=np.uint8)
    with torch.no_grad():
        given = processor([Image.fromarray(each) for each in pixels], return_tensors="pt")
        expected = ViTForImageClassification.from_pretrained(theirs).eval()(**given).logits
        assert (api.load(tmp_path / "run").model(to_tensor(pixels)) - expected).abs().max() < 1e-5
    export_run(tmp_path / "run", tmp_path / "ours")
    assert (tmp_path / "ours/preprocessor_config.json").read_bytes() == (
        theirs / "preprocessor_config.json"
    ).read_bytes()


@pytest.mark.parametrize("said", [{"image_mean": [0.4, 0.5]}, {"rescale_factor": 1.0}, {"do_rescale": False}])
def test_pictures_that_are_no_bytes_of_three_channels_are_refused(said: dict, tmp_path: Path) -> None:
    theirs = folder(tmp_path)
    (theirs / "preprocessor_config.json").write_text(json.dumps(said))
    with pytest.raises(SaccadeError, match=r"image_mean must be 3 numbers|rescale_factor must make pixels"):
        import_folder(theirs, tmp_path / "run")


def test_a_model_of_ours_is_read_by_transformers(tmp_path: Path) -> None:
    recipe = (
        "task: {kind: classify_images, data: x, size: 12}\nmodel: {kind: vit, patch: 4, width: 12, heads: 3, layers: 2}"
    )
    predictor = published.drawn_run(
        recipe, tmp_path / "run", lambda vocab: (vocab / "labels.json").write_text('["cat", "dog"]')
    )
    export_run(tmp_path / "run", tmp_path / "theirs")
    theirs = ViTForImageClassification.from_pretrained(tmp_path / "theirs").eval()
    assert theirs.config.id2label == {0: "cat", 1: "dog"}
    assert ViTImageProcessor.from_pretrained(tmp_path / "theirs").size["height"] == 12
    crop = published.drawn_run(
        recipe.replace("size: 12", "size: 12, fit: crop"),
        tmp_path / "crop",
        lambda vocab: (vocab / "labels.json").write_text('["cat", "dog"]'),
    )
    assert crop.recipe.task.fit == "crop"
    export_run(tmp_path / "crop", tmp_path / "cutting")
    said = json.loads((tmp_path / "cutting" / "preprocessor_config.json").read_text())
    assert said["do_center_crop"] and said["size"] == {"shortest_edge": 12}
    images = torch.randn(2, 3, 12, 12, generator=torch.Generator().manual_seed(3))
    with torch.no_grad():
        assert (predictor.model(images) - theirs(images).logits).abs().max() < 1e-5


SIZE = {"height": 12, "width": 12}
PREPARED = {"size": SIZE, "resample": 3}


@pytest.mark.parametrize(
    ("said", "fit", "notes"),
    [
        (None, "stretch", []),
        (PREPARED, "stretch", []),
        ({**PREPARED, "size": 12, "do_center_crop": True, "crop_size": SIZE}, "crop", []),
        ({**PREPARED, "do_center_crop": False, "crop_size": {"height": 9, "width": 9}}, "stretch", []),
        ({"size": SIZE}, "stretch", ["resample is 2;"]),
        ({**PREPARED, "size": {"shortest_edge": 14}, "do_center_crop": True, "crop_size": 12}, "crop", ["size is {"]),
        (
            {**PREPARED, "do_center_crop": True, "crop_size": 10, "resample": 0},
            "crop",
            ["crop_size is 10;", "resample"],
        ),
    ],
)
def test_how_images_are_prepared_is_read_and_what_is_done_otherwise_is_told(
    said: dict | None, fit: str, notes: list[str], tmp_path: Path
) -> None:
    theirs = folder(tmp_path)
    if said is not None:
        (theirs / "preprocessor_config.json").write_text(json.dumps(said))
    told = import_folder(theirs, tmp_path / "run")[1:]
    assert api.load(tmp_path / "run").recipe.task.fit == fit
    assert len(told) == len(notes)
    for note, beginning in zip(told, notes, strict=True):
        assert note.startswith(f"{theirs}/preprocessor_config.json: {beginning}")


@pytest.mark.parametrize(
    ("said", "mean"),
    [
        ({"image_mean": 0.25}, 0.25),
        ({"image_mean": 0}, 0.0),
        ({"rescale_factor": None}, 0.5),
        ({"image_processor": None, "image_mean": [0.3, 0.3, 0.3]}, 0.3),
        ({"image_processor": {"image_mean": 0.2}}, 0.2),
    ],
)
def test_one_number_stands_for_all_channels_and_nothing_for_the_usual(said: dict, mean: float, tmp_path: Path) -> None:
    theirs = folder(tmp_path)
    (theirs / "preprocessor_config.json").write_text(json.dumps(said))
    import_folder(theirs, tmp_path / "run")
    assert api.load(tmp_path / "run").recipe.model.mean == (mean, mean, mean)


@pytest.mark.parametrize("said", [{"image_mean": "half"}, {"image_std": [1, 1, True]}, {"do_center_crop": "yes"}])
def test_how_images_are_prepared_must_be_said_in_numbers_and_truths(said: dict, tmp_path: Path) -> None:
    theirs = folder(tmp_path)
    (theirs / "preprocessor_config.json").write_text(json.dumps(said))
    with pytest.raises(SaccadeError, match=rf"preprocessor_config\.json: {next(iter(said))} (is|must be)"):
        import_folder(theirs, tmp_path / "run")
