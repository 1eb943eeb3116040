"""CLIP both ways."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, processors, trainers
from transformers import CLIPConfig, CLIPImageProcessor, CLIPModel, PreTrainedTokenizerFast

from saccade import api
from saccade.data.lexicon import Lexicon, Marks
from saccade.data.vocab import Pieces
from saccade.errors import SaccadeError
from saccade.exchange.clip import DEVIATION, MEAN
from saccade.exchange.huggingface import export_run, import_folder
from tests.exchange import published
from tests.shapes import write_captions

START, END = "<|startoftext|>", "<|endoftext|>"
MARKS = {"bos_token": START, "eos_token": END, "pad_token": END, "unk_token": END}
VOCABULARY = 330
TEXT = {"hidden_size": 15, "num_attention_heads": 3, "num_hidden_layers": 2, "intermediate_size": 33}
VISION = {"hidden_size": 21, "num_attention_heads": 7, "num_hidden_layers": 2, "intermediate_size": 35}
VISION |= {"image_size": 12, "patch_size": 4}
TEXTS = ["a cat on a mat", "the old house", "dogs run home, and cats do not"]


def pieces(size: int = 320) -> Tokenizer:
    """Pieces of bytes whose words end with </w>, as CLIP has them."""
    tokenizer = Tokenizer(models.BPE(end_of_word_suffix="</w>"))
    tokenizer.normalizer = normalizers.Lowercase()
    words = pre_tokenizers.Split(Regex(r"[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"), "removed", invert=True)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([words, pre_tokenizers.ByteLevel(add_prefix_space=False)])
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(
        vocab_size=size, initial_alphabet=alphabet, end_of_word_suffix="</w>", show_progress=False
    )
    tokenizer.train_from_iterator(published.TEXTS, trainer)
    learned = json.loads(tokenizer.to_str())["model"]
    vocabulary = learned["vocab"] | {START: len(learned["vocab"]), END: len(learned["vocab"]) + 1}
    merges = [tuple(pair) for pair in learned["merges"]]
    tokenizer.model = models.BPE(vocabulary, merges, end_of_word_suffix="</w>", unk_token=END)
    tokenizer.add_special_tokens([START, END])
    return tokenizer


def framing(tokenizer: Tokenizer) -> Tokenizer:
    """As published: it puts start and end around a text."""
    start, end = ((mark, tokenizer.token_to_id(mark)) for mark in (START, END))
    tokenizer.post_processor = processors.RobertaProcessing(end, start, trim_offsets=False, add_prefix_space=False)
    return tokenizer


def folder(place: Path, *, text: dict | None = None, vision: dict | None = None, end: int | None = None) -> Path:
    tokenizer = framing(pieces())
    marks = {"eos_token_id": tokenizer.token_to_id(END) if end is None else end, "bos_token_id": 1, "pad_token_id": 1}
    texts = {"vocab_size": VOCABULARY, "max_position_embeddings": 19, **marks, **TEXT, **(text or {})}
    config = CLIPConfig(text_config=texts, vision_config={**VISION, **(vision or {})}, projection_dim=10)
    return published.save(CLIPModel(config), place / "theirs", tokenizer, **MARKS)


def pictures(side: int = 12, count: int = 2) -> np.ndarray:
    return np.random.default_rng(1).integers(0, 256, (count, side, side, 3), dtype=np.uint8)


def given(folder: Path, images: np.ndarray) -> dict[str, torch.Tensor]:
    """Texts of several lengths, padded, and images, as their own tools make them."""
    tokenizer = PreTrainedTokenizerFast.from_pretrained(folder)
    side = images.shape[1]
    size = {"height": side, "width": side}
    pixels = CLIPImageProcessor(size=size, crop_size=size)(
        [Image.fromarray(each) for each in images], return_tensors="pt"
    )
    return {**tokenizer(TEXTS, padding=True, return_tensors="pt", return_token_type_ids=False), **pixels}


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"text": {"num_hidden_layers": 1, "hidden_act": "gelu"}, "vision": {"patch_size": 3, "layer_norm_eps": 1e-2}},
        {"text": {"layer_norm_eps": 1e-2}, "vision": {"hidden_act": "gelu", "num_hidden_layers": 3, "patch_size": 6}},
        {"end": 2},  # as in files of long ago: the largest id of a text is meant
    ],
)
def test_images_and_texts_are_as_near_as_theirs_finds_them(settings: dict, tmp_path: Path) -> None:
    theirs = folder(tmp_path, **settings)
    import_folder(theirs, tmp_path / "run")
    predictor = api.load(tmp_path / "run")
    images = pictures()
    with torch.no_grad():
        said = CLIPModel.from_pretrained(theirs).eval()(**given(theirs, images))
        space = predictor.task.space(predictor.model)
        looked, read = space.images(list(images)), space.texts(TEXTS)
        assert (looked - said.image_embeds).abs().max() < 1e-5
        assert (read - said.text_embeds).abs().max() < 1e-5
        assert (predictor.model(looked, read) - said.logits_per_image).abs().max() < 1e-5
        assert (predictor.model(read, looked) - said.logits_per_text).abs().max() < 1e-5
    export_run(tmp_path / "run", tmp_path / "ours")
    published.require_same_files(theirs, tmp_path / "ours")


def test_what_they_say_of_pixels_is_done(tmp_path: Path) -> None:
    theirs = folder(tmp_path)
    processor = CLIPImageProcessor(size={"height": 12, "width": 12}, do_center_crop=False, image_mean=[0.1, 0.2, 0.3])
    processor.save_pretrained(theirs)
    import_folder(theirs, tmp_path / "run")
    predictor = api.load(tmp_path / "run")
    assert predictor.recipe.model.image.mean == (0.1, 0.2, 0.3)
    pixels = processor([Image.fromarray(each) for each in pictures()], return_tensors="pt")["pixel_values"]
    with torch.no_grad():
        expected = CLIPModel.from_pretrained(theirs).eval().get_image_features(pixels).pooler_output
    found = predictor.task.space(predictor.model).images(list(pictures()))
    assert (found - torch.nn.functional.normalize(expected, dim=-1)).abs().max() < 1e-5


@pytest.mark.parametrize("cut", [True, False])
def test_the_middle_of_an_image_is_cut_out_where_they_do_so(tmp_path: Path, cut: bool) -> None:
    """Up to two pixels at the edges: they resize first and then cut."""
    theirs = folder(tmp_path)
    size = {"shortest_edge": 12} if cut else {"height": 12, "width": 12}
    processor = CLIPImageProcessor(size=size, crop_size=12, do_center_crop=cut, do_normalize=False)
    processor.save_pretrained(theirs)
    import_folder(theirs, tmp_path / "run")
    predictor = api.load(tmp_path / "run")
    assert predictor.recipe.task.fit == ("crop" if cut else "stretch")
    wide = np.random.default_rng(1).integers(0, 256, (48, 96, 3), dtype=np.uint8)
    Image.fromarray(wide).save(tmp_path / "wide.png")
    expected = processor(Image.fromarray(wide), return_tensors="pt")["pixel_values"][0] * 255  # (3, 12, 12)
    (found,) = predictor.task.data.pixels([str(tmp_path / "wide.png")])
    assert not isinstance(found, str)
    assert np.abs(found[:, 2:-2] - expected.permute(1, 2, 0).numpy()[:, 2:-2]).max() <= 1


def test_of_settings_that_are_said_twice_the_second_count(tmp_path: Path) -> None:
    theirs = folder(tmp_path)
    config = json.loads((theirs / "config.json").read_text())
    config["vision_config_dict"] = {**config["vision_config"], "hidden_act": "gelu"}
    (theirs / "config.json").write_text(json.dumps(config))
    import_folder(theirs, tmp_path / "run")
    predictor, images = api.load(tmp_path / "run"), pictures()
    with torch.no_grad():
        said = CLIPModel.from_pretrained(theirs).eval()(**given(theirs, images))
    assert (predictor.task.space(predictor.model).images(list(images)) - said.image_embeds).abs().max() < 1e-5


def test_names_with_a_prefix_in_two_files_are_read(tmp_path: Path) -> None:
    theirs = folder(tmp_path)
    import_folder(theirs, tmp_path / "run")

    def longer(tensors: dict) -> None:
        for name in list(tensors):
            tensors[f"clip.{name}"] = tensors.pop(name)
        tensors["clip.text_model.embeddings.position_ids"] = torch.arange(19)[None]

    published.changed(theirs, longer)
    published.cut_in_two(theirs)
    import_folder(theirs, tmp_path / "longer")
    published.require_same_files(tmp_path / "run/final", tmp_path / "longer/final")


def test_names_that_do_not_fit_are_said_at_once(tmp_path: Path) -> None:
    theirs = folder(tmp_path)

    def spoil(tensors: dict) -> None:
        tensors["vision_model.pre_layernorm.weight"] = tensors.pop("vision_model.pre_layrnorm.weight")
        del tensors["logit_scale"]

    published.changed(theirs, spoil)
    with pytest.raises(SaccadeError) as refusal:
        import_folder(theirs, tmp_path / "run")
    assert "pre_layernorm" in str(refusal.value) and "logit_scale" in str(refusal.value)


def test_an_imported_model_predicts_looks_and_searches_without_data(tmp_path: Path) -> None:
    theirs = folder(tmp_path)
    import_folder(theirs, tmp_path / "run")
    predictor = api.load(tmp_path / "run")
    images = pictures(count=3)
    names = [str(tmp_path / f"{n}.png") for n in range(3)]
    for name, pixels in zip(names, images, strict=True):
        Image.fromarray(pixels).save(name)
    with torch.no_grad():
        said = CLIPModel.from_pretrained(theirs).eval()(**given(theirs, images))
    near = said.text_embeds @ said.image_embeds.T  # (texts, images)
    found = predictor.predict([*names, *TEXTS, " ", str(tmp_path / "gone.png")])
    for prediction, cosines, among in zip(found[:6], [*near.T, *near], [TEXTS] * 3 + [names] * 3, strict=True):
        (answer,) = prediction.answers
        assert answer.text == among[int(cosines.argmax())] and abs(answer.score - float(cosines.max())) < 1e-5
    assert [each.refusal is None for each in found] == [True] * 6 + [False] * 2
    (looked,) = predictor.task.space(predictor.model).search(TEXTS[0], tmp_path)
    assert {name for name, _ in looked.images} == {"0.png", "1.png", "2.png"}
    assert abs(dict(looked.images)["1.png"] - float(near[0, 1])) < 1e-5
    maps = predictor.look(TEXTS[0], names[0])
    assert any("text block 2" in each.name for each in maps) and any("image block 2" in each.name for each in maps)
    assert "a" in maps[0].rows.labels and not any("</w>" in label for each in maps[:2] for label in each.rows.labels)
    with pytest.raises(SaccadeError, match="give texts beside the images"):
        predictor.predict(names)


def test_an_imported_model_goes_on_learning(tmp_path: Path) -> None:
    import_folder(folder(tmp_path), tmp_path / "run")
    data = write_captions(tmp_path / "captions", 12, 6)
    settings = [f"task.data={data}", f"train.start={tmp_path / 'run'}", "train.steps=2", "train.batch_tokens=4"]
    settings += ["train.schedule.warmup=1", "train.threads=1"]
    before = api.begin("contrast-quick", out=tmp_path / "begun", settings=settings)
    start = dict(api.load(tmp_path / "run").model.named_parameters())
    assert all(torch.equal(each, start[name]) for name, each in before.trainer.model.named_parameters())
    api.train("contrast-quick", out=tmp_path / "tuned", settings=settings)
    tuned = api.load(tmp_path / "tuned")
    assert tuned.recipe.task.size == 12 and tuned.recipe.model == api.load(tmp_path / "run").recipe.model
    export_run(tmp_path / "tuned", tmp_path / "theirs, tuned")
    model = CLIPModel.from_pretrained(tmp_path / "theirs, tuned").eval()
    assert torch.equal(model.visual_projection.weight, tuned.model.project_left.weight)


def test_a_folder_without_a_tokenizer_says_what_is_missing(tmp_path: Path) -> None:
    theirs = folder(tmp_path)
    (theirs / "tokenizer.json").unlink()
    with pytest.raises(SaccadeError, match=r"no tokenizer: neither tokenizer\.json, nor vocab\.json with merges\.txt"):
        import_folder(theirs, tmp_path / "run")


def test_a_vocabulary_of_two_files_is_read_as_clips(tmp_path: Path) -> None:
    theirs = folder(tmp_path, text={"vocab_size": 520})
    merges = [("c", "a"), ("ca", "t</w>")]
    (tmp_path / "merges").mkdir()
    for place in (theirs, tmp_path / "merges"):
        (place / "merges.txt").write_text("#version: 0.2\n" + "".join(f"{left} {right}\n" for left, right in merges))
    vocabulary = Lexicon.published("clip", tmp_path / "merges").tokenizer.get_vocab()
    (theirs / "vocab.json").write_text(json.dumps(vocabulary))
    (theirs / "tokenizer.json").unlink()
    config = json.loads((theirs / "config.json").read_text())
    config["text_config"]["eos_token_id"] = vocabulary[END]
    (theirs / "config.json").write_text(json.dumps(config))
    import_folder(theirs, tmp_path / "run")
    lexicon = api.load(tmp_path / "run").task.pieces
    assert lexicon.pieces(lexicon.encode("A cat")) == ["a", "cat"]
    vocabulary["cat</w>"], vocabulary["ca"] = vocabulary["ca"], vocabulary["cat</w>"]
    (theirs / "vocab.json").write_text(json.dumps(vocabulary))
    with pytest.raises(SaccadeError, match=r"give tokenizer\.json instead"):
        import_folder(theirs, tmp_path / "other")


def test_an_end_that_the_model_does_not_look_for_is_refused(tmp_path: Path) -> None:
    theirs = folder(tmp_path, end=7)
    with pytest.raises(SaccadeError, match="for the tokenizer and 7 for the model"):
        import_folder(theirs, tmp_path / "run")


OWN = """
task: {kind: contrast, data: x, size: 12, longest: 9}
model:
  kind: clip
  width: 6
  pool: class
  image: {kind: vit, patch: 4, width: 12, heads: 3, hidden: 9, layers: 2, class_position: true, first_norm: true,
          mean: [0.3, 0.4, 0.5], activation: quick_gelu}
  text: {width: 9, heads: 3, hidden: 12, layers: 2, causal: true, positions: learned}
"""


def test_a_model_of_ours_is_read_by_transformers_with_its_tools(tmp_path: Path) -> None:
    tokenizer = pieces()
    start, end = tokenizer.token_to_id(START), tokenizer.token_to_id(END)
    lexicon = Lexicon(tokenizer, "clip", marks=Marks(end, start, end, None))
    predictor = published.drawn_run(OWN, tmp_path / "run", lexicon.save, deviation=0.1)
    export_run(tmp_path / "run", tmp_path / "theirs")
    images, long = pictures(), [*TEXTS, "the cat sat on the mat and the dog sat on the cat"]
    words = PreTrainedTokenizerFast.from_pretrained(tmp_path / "theirs")
    given = words(long, padding=True, truncation=True, return_tensors="pt", return_token_type_ids=False)
    processor = CLIPImageProcessor.from_pretrained(tmp_path / "theirs")
    paths = [tmp_path / f"{n}.png" for n in range(2)]
    for path, each in zip(paths, images, strict=True):
        Image.fromarray(each).save(path)
    given["pixel_values"] = processor([Image.open(path) for path in paths], return_tensors="pt")["pixel_values"]
    with torch.no_grad():
        said = CLIPModel.from_pretrained(tmp_path / "theirs").eval()(**given)
    space = predictor.task.space(predictor.model)
    looked = space.images(predictor.task.data.pixels([str(path) for path in paths]))
    assert (space.texts(long) - said.text_embeds).abs().max() < 1e-5
    assert (looked - said.image_embeds).abs().max() < 1e-5


def test_all_that_clip_has_no_place_for_is_said_at_once(tmp_path: Path) -> None:
    recipe = "task: {kind: contrast, data: x}\nmodel: {kind: clip, image: {kind: vit, width: 8, heads: 2}}"
    published.drawn_run(recipe, tmp_path / "run", Pieces.learn(published.TEXTS, 300).save)
    with pytest.raises(SaccadeError) as refusal:
        export_run(tmp_path / "run", tmp_path / "theirs")
    for each in ("marks around a text", "pool mean", "first_norm", "class_position", "not causal", "sinusoidal"):
        assert each in str(refusal.value)
    assert not (tmp_path / "theirs").exists()


def test_the_pixels_of_a_folder_that_says_nothing_are_the_published_ones(tmp_path: Path) -> None:
    import_folder(folder(tmp_path), tmp_path / "run")
    image = api.load(tmp_path / "run").recipe.model.image
    assert (image.mean, image.deviation) == (MEAN, DEVIATION)
