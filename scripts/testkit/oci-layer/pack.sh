# A tree of files as layers of a container image.
# shellcheck shell=bash

# own_tree REPO REF TREE: the files of a commit, as copies: those of a repository belong to every machine, and change while
# one is made, if only by a further name. What is one file with several names stays one.
own_tree() {
    ostree --repo="$1" checkout "$2" "$3.shared"
    cp -a "$3.shared" "$3"
    rm -rf "$3.shared"
}

# layer TREE OUT NAME KIND COMPRESSOR ARGUMENTS…: packs what the arguments of tar select into OUT/NAME, and adds a line to
# OUT/layers: name, media type, digest, size, digest of the contents. The kind is the end of the media type.
layer() {
    local tree=$1 out=$2 name=$3 kind=$4 compressor=$5
    shift 5
    tar -C "$tree" --format=pax --pax-option=delete=atime,delete=ctime --sort=name --mtime=@1 --numeric-owner \
        --xattrs --xattrs-include='*' -cf "$out/$name.tar" "$@"
    $compressor <"$out/$name.tar" >"$out/$name"
    echo "$name application/vnd.oci.image.layer.v1.tar$kind sha256:$(sha256sum <"$out/$name" | cut -d' ' -f1)" \
        "$(stat -c %s "$out/$name") sha256:$(sha256sum <"$out/$name.tar" | cut -d' ' -f1)" >>"$out/layers"
    rm "$out/$name.tar"
}
